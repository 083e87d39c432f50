/* golden.h - what each record must look like, encoded by hand from ONDISK.md (not by the code under test).
 * They never change: a change of the format is a new version. */
#ifndef TEST_META_GOLDEN_H
#define TEST_META_GOLDEN_H

#define GOLDEN_SITE                                                                                                  \
    "0101000031ca4d0a0a10020910171e252c333a41484f565d646b1210030a11181f262d343b424950575e656c1a10040b"               \
    "121920272e353c434a51585f666d20ac022a046c656674"

#define GOLDEN_VOLUME                                                                                                \
    "010200005d749e520a106e757c838a91989fa6adb4bbc2c9d0d710031a04766f6c3922046d61696e2a10c9d0d7dee5ec"               \
    "f3fa01080f161d242b3232082f6465762f76646238808080808020400148015080d095ffbc31"

#define GOLDEN_COLLECTION                                                                                            \
    "01030000bb37ea210a04766f6c35125508011210383f464d545b626970777e858c939aa1180120012a103d444b525960"               \
    "676e757c838a91989fa632103d444b525960676e757c838a91989fa632103e454c535a61686f767d848b9299a0a73801"               \
    "700178e807"

/* The same two as they are written now (version 2): the fields added since are at their defaults, so not there. */
#define GOLDEN_VOLUME_2                                                                                              \
    "02020000719e1ffd0a106e757c838a91989fa6adb4bbc2c9d0d710031a04766f6c3922046d61696e2a10c9d0d7dee5ec"               \
    "f3fa01080f161d242b3232082f6465762f76646238808080808020400148015080d095ffbc31"

#define GOLDEN_COLLECTION_2                                                                                          \
    "0203000000f85efa0a04766f6c35125508011210383f464d545b626970777e858c939aa1180120012a103d444b525960"               \
    "676e757c838a91989fa632103d444b525960676e757c838a91989fa632103e454c535a61686f767d848b9299a0a73801"               \
    "700178e807"

/* With the times that version 2 added to the lineage. */
#define GOLDEN_COLLECTION_TIMES                                                                                      \
    "02030000b059c65a0a04766f6c35126508011210383f464d545b626970777e858c939aa1180120012a103d444b5259"                 \
    "60676e757c838a91989fa632103d444b525960676e757c838a91989fa632103e454c535a61686f767d848b9299a0a7"                 \
    "3801700178e8078001fb88d6b9ad338801c88bd6b9ad33"

/* A write-back volume (version 3): field 14 at the end. */
#define GOLDEN_VOLUME_WRITE_BACK                                                                                     \
    "03020000ca083a320a106e757c838a91989fa6adb4bbc2c9d0d710031a04766f6c3922046d61696e2a10c9d0d7dee5ec"               \
    "f3fa01080f161d242b3232082f6465762f76646238808080808020400148015080d095ffbc317001"

#define GOLDEN_INTENT "01040000f268221b"

#define GOLDEN_EXACT "010500001332d97f00030609"

#define GOLDEN_FROM "0106000033a3e5690807060504030201"

#define GOLDEN_BAD "010700008843aee4"

#endif
