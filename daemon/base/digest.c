/* digest.c - truncated SHA-256 of blocks, through OpenSSL.
 *
 * One context and one fetched algorithm serve a whole run: fetching for each block costs more than hashing it.
 */
#include "base/digest.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"

_Static_assert(SR_DIGEST_BLOCK_BYTES == SR_BLOCK_BYTES, "a digest covers one tracked block");

void sr_digest_blocks(const uint8_t *data, size_t n_blocks, uint8_t *digests)
{
    uint8_t full[EVP_MAX_MD_SIZE];
    unsigned full_bytes;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_MD *sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);

    SR_ASSERT(context != NULL && sha256 != NULL);
    for (size_t i = 0; i < n_blocks; i++) {
        int good = EVP_DigestInit_ex2(context, sha256, NULL) == 1 &&
                   EVP_DigestUpdate(context, data + i * SR_DIGEST_BLOCK_BYTES, SR_DIGEST_BLOCK_BYTES) == 1 &&
                   EVP_DigestFinal_ex(context, full, &full_bytes) == 1;
        SR_ASSERT(good && full_bytes == 32);
        memcpy(digests + i * SR_DIGEST_OUT_BYTES, full, SR_DIGEST_OUT_BYTES);
    }
    EVP_MD_free(sha256);
    EVP_MD_CTX_free(context);
}
