/* check.c - walks the B-trees of an LMDB 0.9 file with pread (see check.h).
 *
 * The file, as LMDB 0.9 writes it on 64-bit little-endian machines (all numbers little-endian):
 *
 *   page    0 u64 number   8 u16 pad   10 u16 flags   12 u16 lower   14 u16 upper   16 u16 offset[] of nodes
 *           overflow pages have u32 count at 12 instead of lower and upper, and data from 16
 *   meta    pages 0 and 1; behind the page header: u32 magic, u32 version, u64 address, u64 map size,
 *           2 trees (free list, main), u64 last page, u64 transaction
 *   tree    u32 pad (of the free list: page size), u16 flags, u16 depth, u64 branch, leaf, overflow pages,
 *           u64 entries, u64 root (all ones: empty)
 *   node    u16 lo, u16 hi, u16 flags, u16 key size, key, data; size of the data (leaf) is lo | hi << 16,
 *           child (branch) is lo | hi << 16 | flags << 32
 *
 * What it holds the file to, beyond every number being in range:
 *   C1  Both meta pages are intact, a transaction apart, each on the page that its number says.  (A meta page
 *       whose number was damaged would otherwise silently bring back the transaction before.)
 *   C2  The file is as long as the map, so no page of the map lies behind its end.
 *   C3  No page is used twice, also not by the free list.
 *   C4  Keys ascend over the whole tree and every branch key separates its children: a lookup finds all.
 *   C5  Pages, depth and entries are as many as each tree says.
 *   C6  The newest entry of a free list is that of its transaction.  (Every transaction but the very first replaces
 *       the root of the catalogue, so it frees at least one page.)  With C1 this finds one changed bit in the number
 * of either meta page.  The snapshot before the newest is still whole: LMDB reuses its pages only once the next
 * transaction is committed.
 */
#include "meta/check.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"

#define LMDB_MAGIC        0xbeefc0deu
#define LMDB_DATA_VERSION 1u
#define NO_PAGE           UINT64_MAX
#define PAGE_MIN_BYTES    256u
#define PAGE_MAX_BYTES    65536u
#define MAP_MAX_PAGES     (UINT64_C(1) << 34)
#define DEPTH_MAX         32
#define KEY_MAX_BYTES     511
#define OVERFLOW_MAX      (256u << 20) /* bytes of one value: the free list of a large deletion */

enum { PAGE_BRANCH = 0x01, PAGE_LEAF = 0x02, PAGE_OVERFLOW = 0x04, PAGE_META = 0x08, PAGE_KIND = 0x6f };
enum { NODE_BIG = 0x01, NODE_TREE = 0x02, NODE_DUPS = 0x04 };
enum { TREE_INTEGER_KEY = 0x08 };

struct disk_tree {
    uint32_t pad;
    uint16_t flags;
    uint16_t depth;
    uint64_t branch_pages, leaf_pages, overflow_pages;
    uint64_t entries;
    uint64_t root;
};

struct disk_page {
    uint64_t number;
    uint16_t pad;
    uint16_t flags;
    union {
        struct {
            uint16_t lower, upper;
        };
        uint32_t overflow_count;
    };
};

struct disk_meta {
    struct disk_page page;
    uint32_t magic;
    uint32_t version;
    uint64_t address;
    uint64_t map_bytes;
    struct disk_tree trees[2];
    uint64_t last_page;
    uint64_t txnid;
};

struct disk_node {
    uint16_t lo, hi, flags, key_bytes;
};

_Static_assert(sizeof(struct disk_tree) == 48, "LMDB tree");
_Static_assert(sizeof(struct disk_page) == 16, "LMDB page header");
_Static_assert(sizeof(struct disk_meta) == 152, "LMDB meta page");
_Static_assert(offsetof(struct disk_meta, trees) == 40, "LMDB meta page");
_Static_assert(sizeof(struct disk_node) == 8, "LMDB node");
_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN && sizeof(size_t) == 8, "LMDB's file depends on the machine");

struct walk {
    struct sr_meta_check *check;
    int fd;
    uint32_t page_bytes;
    uint64_t last_page;
    uint8_t *used; /* a bit a page */
    bool freelist; /* the tree being walked is the free list ... */
    bool older;    /* ... of the snapshot before: what it lists may be in use by now */
    enum sr_meta_db db;
    /* of the tree being walked */
    uint64_t entries, branch_pages, leaf_pages, overflow_pages;
    uint32_t depth;
    uint8_t last_key[KEY_MAX_BYTES];
    uint32_t last_key_bytes;
    uint8_t floor_key[KEY_MAX_BYTES]; /* the separator that the next leaf key must not be below */
    uint32_t floor_key_bytes;
    bool have_last, have_floor;
    bool main_tree;
    struct disk_tree named[SR_META_DB_COUNT];
    bool have_named[SR_META_DB_COUNT];
};

/* ---- errors ---------------------------------------------------------------------------------------- */

static enum sr_error __attribute__((format(printf, 3, 4)))
fail(struct sr_meta_check *check, enum sr_error error, const char *format, ...)
{
    char detail[200];
    va_list args;

    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    snprintf(check->error_text, check->error_text_bytes, "%s: %s", check->path, detail);
    return error;
}

static enum sr_error damaged(struct walk *walk, uint64_t page, const char *what)
{
    return fail(walk->check, SR_E_CORRUPT, "the metadata is damaged (page %" PRIu64 " of %s: %s)", page,
                walk->freelist    ? "the free list"
                : walk->main_tree ? "the catalogue"
                                  : sr_meta_db_name(walk->db),
                what);
}

static enum sr_error read_at(struct sr_meta_check *check, int fd, void *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (uint8_t *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(check, SR_E_IO, "cannot read the metadata: %s", strerror(errno));
        if (n == 0)
            return fail(check, SR_E_CORRUPT, "the metadata is truncated (the file ends at byte %" PRIu64 ")",
                        offset + done);
        done += (size_t)n;
    }
    return SR_OK;
}

/* ---- pages ----------------------------------------------------------------------------------------- */

static bool claim_page(struct walk *walk, uint64_t page)
{
    if (page < 2 || page > walk->last_page)
        return false;
    uint8_t bit = (uint8_t)(1u << (page & 7));
    if (walk->used[page >> 3] & bit)
        return false;
    walk->used[page >> 3] |= bit;
    return true;
}

/* An overflow value: its own memory, to be freed by the caller. */
static enum sr_error read_overflow(struct walk *walk, uint64_t first, uint32_t value_bytes, uint8_t **value)
{
    struct disk_page header;

    if (value_bytes > OVERFLOW_MAX || first < 2 || first > walk->last_page)
        return damaged(walk, first, "a value of impossible size or place");
    enum sr_error error = read_at(walk->check, walk->fd, &header, sizeof(header), first * walk->page_bytes);
    if (error != SR_OK)
        return error;
    uint64_t pages = ((uint64_t)value_bytes + sizeof(header) + walk->page_bytes - 1) / walk->page_bytes;
    if (header.number != first || (header.flags & PAGE_KIND) != PAGE_OVERFLOW || header.overflow_count != pages)
        return damaged(walk, first, "not the value it should be");
    for (uint64_t i = 0; i < pages; i++) {
        if (!claim_page(walk, first + i))
            return damaged(walk, first + i, "used twice");
    }
    walk->overflow_pages += pages;
    *value = malloc((size_t)value_bytes + 1);
    if (*value == NULL)
        return fail(walk->check, SR_E_NO_MEMORY, "not enough memory to check the metadata");
    error = read_at(walk->check, walk->fd, *value, value_bytes, first * walk->page_bytes + sizeof(header));
    if (error != SR_OK) {
        free(*value);
        *value = NULL;
    }
    return error;
}

/* ---- order ----------------------------------------------------------------------------------------- */

static int key_compare(const struct walk *walk, const uint8_t *a, uint32_t a_bytes, const uint8_t *b,
                       uint32_t b_bytes)
{
    if (walk->freelist) { /* transaction numbers */
        uint64_t x, y;
        memcpy(&x, a, sizeof(x));
        memcpy(&y, b, sizeof(y));
        return x < y ? -1 : x > y;
    }
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (order != 0)
        return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static bool key_size_ok(const struct walk *walk, uint32_t bytes)
{
    return walk->freelist ? bytes == sizeof(uint64_t) : bytes > 0 && bytes <= KEY_MAX_BYTES;
}

/* Every leaf key is above the one before, and not below the separator on the way to it. */
static bool leaf_key_in_order(struct walk *walk, const uint8_t *key, uint32_t bytes)
{
    if (walk->have_last && key_compare(walk, key, bytes, walk->last_key, walk->last_key_bytes) <= 0)
        return false;
    if (walk->have_floor && key_compare(walk, key, bytes, walk->floor_key, walk->floor_key_bytes) < 0)
        return false;
    walk->have_floor = false;
    walk->have_last = true;
    memcpy(walk->last_key, key, bytes);
    walk->last_key_bytes = bytes;
    return true;
}

/* A separator is above all before it. */
static bool separator_in_order(struct walk *walk, const uint8_t *key, uint32_t bytes)
{
    if (walk->have_floor || !walk->have_last ||
        key_compare(walk, key, bytes, walk->last_key, walk->last_key_bytes) <= 0)
        return false;
    walk->have_floor = true;
    memcpy(walk->floor_key, key, bytes);
    walk->floor_key_bytes = bytes;
    return true;
}

/* ---- what the leaves hold -------------------------------------------------------------------------- */

/* A value of the free list: count, then that many page numbers. */
static enum sr_error take_free_pages(struct walk *walk, uint64_t page, const uint8_t *value, uint32_t bytes)
{
    uint64_t count, free_page;

    if (bytes < sizeof(count))
        return damaged(walk, page, "an entry is too short");
    memcpy(&count, value, sizeof(count));
    if (count > bytes / sizeof(count) - 1)
        return damaged(walk, page, "an entry is too short");
    for (uint64_t i = 1; i <= count && !walk->older; i++) {
        memcpy(&free_page, value + i * sizeof(free_page), sizeof(free_page));
        if (!claim_page(walk, free_page))
            return damaged(walk, page, "it lists a page that is in use or not there");
    }
    walk->check->free_pages += walk->older ? 0 : count;
    return SR_OK;
}

static enum sr_error take_named_tree(struct walk *walk, uint64_t page, const struct disk_node *node,
                                     const uint8_t *key, const uint8_t *value, uint32_t bytes)
{
    struct disk_tree tree;

    if (node->flags != NODE_TREE || bytes != sizeof(tree))
        return damaged(walk, page, "an entry that is no database");
    memcpy(&tree, value, sizeof(tree));
    if (tree.flags != 0)
        return damaged(walk, page, "a database with impossible flags");
    enum sr_meta_db db = sr_meta_db_from_name(key, node->key_bytes);
    if (db == SR_META_DB_COUNT)
        return fail(walk->check, SR_E_VERSION,
                    "the metadata was written by a newer syncrep (it has a database \"%.*s\")", (int)node->key_bytes,
                    (const char *)key);
    walk->named[db] = tree;
    walk->have_named[db] = true;
    return SR_OK;
}

static enum sr_error take_leaf_node(struct walk *walk, uint64_t page, const uint8_t *data, uint32_t offset)
{
    struct disk_node node;
    uint8_t *overflow = NULL;
    const uint8_t *value;
    uint64_t first;

    memcpy(&node, data + offset, sizeof(node));
    uint32_t bytes = node.lo | (uint32_t)node.hi << 16;
    uint32_t inline_bytes = node.flags & NODE_BIG ? (uint32_t)sizeof(first) : bytes;
    uint64_t end = (uint64_t)offset + sizeof(node) + node.key_bytes + inline_bytes;
    if (!key_size_ok(walk, node.key_bytes) || end > walk->page_bytes || (node.flags & NODE_DUPS) != 0)
        return damaged(walk, page, "an entry of impossible size");
    const uint8_t *key = data + offset + sizeof(node);
    value = key + node.key_bytes;
    if (!leaf_key_in_order(walk, key, node.key_bytes))
        return damaged(walk, page, "keys out of order");
    walk->entries++;

    enum sr_error error = SR_OK;
    if (walk->main_tree)
        return take_named_tree(walk, page, &node, key, value, bytes);
    if (node.flags & NODE_TREE)
        return damaged(walk, page, "a database inside a database");
    if (node.flags & NODE_BIG) {
        memcpy(&first, value, sizeof(first));
        error = read_overflow(walk, first, bytes, &overflow);
        value = overflow;
    }
    if (error == SR_OK && walk->freelist)
        error = take_free_pages(walk, page, value, bytes);
    else if (error == SR_OK && walk->check->visit != NULL)
        error = walk->check->visit(walk->check->arg, walk->db, key, node.key_bytes, value, bytes);
    free(overflow);
    return error;
}

/* ---- the walk -------------------------------------------------------------------------------------- */

static enum sr_error walk_page(struct walk *walk, uint64_t page, uint32_t level);

static enum sr_error take_branch_node(struct walk *walk, uint64_t page, const uint8_t *data, uint32_t offset,
                                      uint32_t index, uint32_t level)
{
    struct disk_node node;

    memcpy(&node, data + offset, sizeof(node));
    if ((uint64_t)offset + sizeof(node) + node.key_bytes > walk->page_bytes)
        return damaged(walk, page, "an entry of impossible size");
    /* The first key of a branch is never looked at, by LMDB or here. */
    if (index > 0 && (!key_size_ok(walk, node.key_bytes) ||
                      !separator_in_order(walk, data + offset + sizeof(node), node.key_bytes)))
        return damaged(walk, page, "keys out of order");
    uint64_t child = node.lo | (uint64_t)node.hi << 16 | (uint64_t)node.flags << 32;
    return walk_page(walk, child, level + 1);
}

static enum sr_error walk_nodes(struct walk *walk, uint64_t page, const uint8_t *data, uint32_t level)
{
    struct disk_page header;
    uint16_t offset;

    memcpy(&header, data, sizeof(header));
    uint32_t kind = header.flags & PAGE_KIND;
    bool leaf = kind == PAGE_LEAF;
    if (header.number != page || (kind != PAGE_LEAF && kind != PAGE_BRANCH) || leaf != (level == walk->depth))
        return damaged(walk, page, "not the page it should be");
    if (header.lower < sizeof(header) || header.lower > header.upper || header.upper > walk->page_bytes ||
        header.lower % 2 != 0)
        return damaged(walk, page, "impossible bounds");
    uint32_t n = (header.lower - (uint32_t)sizeof(header)) / 2;
    if (n < (leaf ? 1u : 2u))
        return damaged(walk, page, "no entries");
    walk->leaf_pages += leaf;
    walk->branch_pages += !leaf;

    enum sr_error error = SR_OK;
    for (uint32_t i = 0; i < n && error == SR_OK; i++) {
        memcpy(&offset, data + sizeof(header) + 2 * i, sizeof(offset));
        if (offset < header.upper || offset + sizeof(struct disk_node) > walk->page_bytes)
            return damaged(walk, page, "an entry out of bounds");
        error =
            leaf ? take_leaf_node(walk, page, data, offset) : take_branch_node(walk, page, data, offset, i, level);
    }
    return error;
}

/* Recursion is bounded by DEPTH_MAX. */
static enum sr_error walk_page(struct walk *walk, uint64_t page, uint32_t level)
{
    if (level > walk->depth)
        return damaged(walk, page, "the tree is deeper than it says");
    if (!claim_page(walk, page))
        return damaged(walk, page, "used twice or not there");
    uint8_t *data = malloc(walk->page_bytes);
    if (data == NULL)
        return fail(walk->check, SR_E_NO_MEMORY, "not enough memory to check the metadata");
    enum sr_error error = read_at(walk->check, walk->fd, data, walk->page_bytes, page * walk->page_bytes);
    if (error == SR_OK)
        error = walk_nodes(walk, page, data, level);
    free(data);
    return error;
}

static enum sr_error walk_tree(struct walk *walk, const struct disk_tree *tree)
{
    walk->entries = walk->branch_pages = walk->leaf_pages = walk->overflow_pages = 0;
    walk->have_last = walk->have_floor = false;
    walk->depth = tree->depth;

    enum sr_error error = SR_OK;
    if (tree->root == NO_PAGE) {
        if (tree->depth != 0)
            return damaged(walk, 0, "a root is missing");
    } else {
        if (tree->depth == 0 || tree->depth > DEPTH_MAX)
            return damaged(walk, tree->root, "impossible depth");
        error = walk_page(walk, tree->root, 1);
    }
    if (error != SR_OK)
        return error;
    if (walk->entries != tree->entries || walk->branch_pages != tree->branch_pages ||
        walk->leaf_pages != tree->leaf_pages || walk->overflow_pages != tree->overflow_pages)
        return damaged(walk, tree->root, "entries or pages are missing");
    if (!walk->older)
        walk->check->used_pages += walk->branch_pages + walk->leaf_pages + walk->overflow_pages;
    return SR_OK;
}

/* C6 */
static enum sr_error walk_freelist(struct walk *walk, const struct disk_meta *meta)
{
    uint64_t newest = 0;

    walk->freelist = true;
    enum sr_error error = walk_tree(walk, &meta->trees[0]);
    if (error != SR_OK)
        return error;
    if (walk->have_last)
        memcpy(&newest, walk->last_key, sizeof(newest));
    if (meta->txnid >= 2 && newest != meta->txnid)
        return damaged(walk, meta->trees[0].root, "it belongs to another transaction than its meta page says");
    return SR_OK;
}

static enum sr_error walk_all(struct walk *walk, const struct disk_meta *meta)
{
    walk->main_tree = true;
    enum sr_error error = walk_tree(walk, &meta->trees[1]);
    walk->main_tree = false;
    for (int db = 0; db < SR_META_DB_COUNT && error == SR_OK; db++) {
        walk->db = (enum sr_meta_db)db;
        if (!walk->have_named[db])
            return fail(walk->check, SR_E_CORRUPT, "the metadata is damaged (database %s is missing)",
                        sr_meta_db_name(walk->db));
        error = walk_tree(walk, &walk->named[db]);
    }
    if (error != SR_OK)
        return error;
    return walk_freelist(walk, meta); /* last: what it lists must be in use nowhere */
}

/* Nothing but C6, of the snapshot before the newest. */
static enum sr_error walk_older(const struct walk *newest, const struct disk_meta *meta)
{
    struct walk walk = {.check = newest->check,
                        .fd = newest->fd,
                        .page_bytes = newest->page_bytes,
                        .last_page = meta->last_page,
                        .older = true};

    if ((meta->last_page + 1) * walk.page_bytes > walk.check->map_bytes)
        return fail(walk.check, SR_E_CORRUPT, "the metadata is damaged (impossible size in a meta page)");
    walk.used = calloc(1, (size_t)(meta->last_page / 8 + 1));
    if (walk.used == NULL)
        return fail(walk.check, SR_E_NO_MEMORY, "not enough memory to check the metadata");
    enum sr_error error = walk_freelist(&walk, meta);
    free(walk.used);
    return error;
}

/* ---- the two meta pages ---------------------------------------------------------------------------- */

static enum sr_error read_meta(struct sr_meta_check *check, int fd, uint64_t offset, uint64_t number,
                               struct disk_meta *meta)
{
    enum sr_error error = read_at(check, fd, meta, sizeof(*meta), offset);
    if (error != SR_OK)
        return error;
    if (meta->page.number != number || (meta->page.flags & PAGE_KIND) != PAGE_META || meta->magic != LMDB_MAGIC)
        return fail(check, SR_E_CORRUPT, "the metadata is damaged (meta page %" PRIu64 ")", number);
    if (meta->version != LMDB_DATA_VERSION)
        return fail(check, SR_E_VERSION, "the metadata has LMDB format %u, this syncrep reads format %u",
                    meta->version, LMDB_DATA_VERSION);
    uint32_t page_bytes = meta->trees[0].pad;
    if (page_bytes < PAGE_MIN_BYTES || page_bytes > PAGE_MAX_BYTES || (page_bytes & (page_bytes - 1)) != 0 ||
        meta->trees[0].flags != TREE_INTEGER_KEY || meta->trees[1].flags != 0 || meta->last_page < 1 ||
        meta->last_page >= MAP_MAX_PAGES || (meta->txnid != 0 && (meta->txnid & 1) != number))
        return fail(check, SR_E_CORRUPT, "the metadata is damaged (meta page %" PRIu64 ")", number);
    return SR_OK;
}

static enum sr_error read_metas(struct sr_meta_check *check, int fd, struct disk_meta *chosen,
                                struct disk_meta *other)
{
    struct disk_meta metas[2];

    enum sr_error error = read_meta(check, fd, 0, 0, &metas[0]);
    if (error == SR_OK)
        error = read_meta(check, fd, metas[0].trees[0].pad, 1, &metas[1]);
    if (error != SR_OK)
        return error;
    uint64_t a = metas[0].txnid, b = metas[1].txnid;
    if (metas[0].trees[0].pad != metas[1].trees[0].pad || (a != b + 1 && b != a + 1 && (a | b) != 0))
        return fail(check, SR_E_CORRUPT, "the metadata is damaged (the meta pages do not fit each other)");
    size_t choice = check->txnid == 0 ? b > a : check->txnid & 1;
    *chosen = metas[choice];
    *other = metas[!choice];
    if (check->txnid != 0 && chosen->txnid != check->txnid)
        return fail(check, SR_E_NOT_FOUND, "transaction %" PRIu64 " is gone", check->txnid);
    check->map_bytes = metas[0].map_bytes > metas[1].map_bytes ? metas[0].map_bytes : metas[1].map_bytes;
    return SR_OK;
}

enum sr_error sr_meta_check_file(int fd, struct sr_meta_check *check)
{
    struct walk walk = {.check = check, .fd = fd};
    struct disk_meta meta, other;
    struct stat st;

    SR_ASSERT(check->error_text != NULL && check->error_text_bytes > 0);
    check->used_pages = check->free_pages = check->map_bytes = 0;
    enum sr_error error = read_metas(check, fd, &meta, &other);
    if (error != SR_OK)
        return error;
    if (fstat(fd, &st) != 0)
        return fail(check, SR_E_IO, "cannot read the metadata: %s", strerror(errno));
    walk.page_bytes = meta.trees[0].pad;
    walk.last_page = meta.last_page;
    if (check->map_bytes > MAP_MAX_PAGES * walk.page_bytes ||
        (meta.last_page + 1) * walk.page_bytes > check->map_bytes)
        return fail(check, SR_E_CORRUPT, "the metadata is damaged (impossible size in a meta page)");
    if ((uint64_t)st.st_size < check->map_bytes)
        return fail(check, SR_E_CORRUPT, "the metadata is truncated (%" PRIu64 " bytes, should be %" PRIu64 ")",
                    (uint64_t)st.st_size, check->map_bytes);
    walk.used = calloc(1, (size_t)(meta.last_page / 8 + 1));
    if (walk.used == NULL)
        return fail(check, SR_E_NO_MEMORY, "not enough memory to check the metadata");
    error = walk_all(&walk, &meta);
    if (error == SR_OK && check->txnid == 0) /* beside a running daemon the one before may be gone by now */
        error = walk_older(&walk, &other);
    free(walk.used);
    return error;
}
