/* import_twice.c - is what is to be imported a copy of a volume at this site already, perhaps under another name?
 *
 * The same file or device by any path, and a loop device whose file is a copy or is behind another loop device.  Copies
 * that are open are locked as well; this also finds those that are not open now, and names the volume.
 */
#include <stdio.h>

#include "site.h"

static bool copy_of(const struct sr_volume *volume, struct sr_pool_backing *backing)
{
    char image[SR_POOL_PATH_BYTES];

    if (volume->meta.imported)
        return sr_pool_import_backing(volume->meta.path, backing);
    return volume->pool && volume->pool->pool &&
           sr_pool_image_path(volume->pool->pool, volume->meta.name, image) == SR_OK &&
           sr_pool_import_backing(image, backing);
}

const struct sr_volume *sr_import_twice(const struct sr_site *site, const char *path)
{
    struct sr_pool_backing wanted, copy;
    const struct sr_volume *volume;

    if (!sr_pool_import_backing(path, &wanted))
        return NULL;
    TAILQ_FOREACH (volume, &site->volumes, link)
        if (copy_of(volume, &copy) && sr_pool_backings_meet(&wanted, &copy))
            return volume;
    return NULL;
}
