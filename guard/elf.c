/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elf: an object's dynamic section leads to its symbols, their names and a hash table over them.
 * glibc has added the load address to those pointers in memory, except if the section is read-only
 * (the vdso): there, a value below the load address is still an offset.
 */
#include "guard/elf.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

struct elf_search {
    bool (*visit)(const struct elf_object *object, void *user);
    void *user;
    const void *address;
    struct elf_object *found;
};

static const void *at(const struct elf_object *object, ElfW(Addr) value) {
    uintptr_t base = (uintptr_t)object->base;

    return (const void *)(value >= base ? value : base + value);
}

static void describe(const struct dl_phdr_info *info, struct elf_object *ret) {
    const ElfW(Dyn) * entry;
    const char *strings = NULL;
    ElfW(Addr) soname = 0;
    bool has_soname = false;

    *ret = (struct elf_object){ info->dlpi_name ? info->dlpi_name : "", NULL,
                                (const void *)info->dlpi_addr, NULL };
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            ret->dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!ret->dynamic)
        return;
    for (entry = ret->dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = at(ret, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SONAME) {
            soname = entry->d_un.d_val;
            has_soname = true;
        }
    }
    if (strings && has_soname)
        ret->soname = strings + soname;
}

static int visit_one(struct dl_phdr_info *info, size_t size, void *user) {
    struct elf_search *search = user;
    struct elf_object object;

    (void)size;
    describe(info, &object);
    return search->visit(&object, search->user);
}

bool elf_each(bool (*visit)(const struct elf_object *object, void *user), void *user) {
    struct elf_search search = { .visit = visit, .user = user };

    return dl_iterate_phdr(visit_one, &search);
}

static int compare_one(struct dl_phdr_info *info, size_t size, void *user) {
    struct elf_search *search = user;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type == PT_LOAD && (uintptr_t)search->address >= start &&
            (uintptr_t)search->address - start < segment->p_memsz) {
            describe(info, search->found);
            return 1;
        }
    }
    return 0;
}

bool elf_object_of(const void *address, struct elf_object *ret) {
    struct elf_search search = { .address = address, .found = ret };

    return dl_iterate_phdr(compare_one, &search);
}

bool elf_is(const struct elf_object *object, const char *soname) {
    return object->soname && strcmp(object->soname, soname) == 0;
}

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static uint32_t sysv_hash(const char *name) {
    uint32_t hash = 0;

    for (; *name; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    return hash;
}

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu, *sysv;
};

static const ElfW(Sym) * match(const struct tables *tables, uint32_t i, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[i];
    unsigned type = symbol->st_info & 0xf; /* the same for both classes */

    if (symbol->st_shndx == SHN_UNDEF || (symbol->st_value == 0 && type != STT_TLS) ||
        (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE && type != STT_GNU_IFUNC))
        return NULL;
    return strcmp(tables->strings + symbol->st_name, name) == 0 ? symbol : NULL;
}

static const ElfW(Sym) * by_gnu_hash(const struct tables *tables, const char *name) {
    uint32_t n_buckets = tables->gnu[0], first = tables->gnu[1], n_bloom = tables->gnu[2];
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(tables->gnu + 4) + n_bloom);
    const uint32_t *chain = buckets + n_buckets;
    uint32_t hash = gnu_hash(name), i;

    i = n_buckets ? buckets[hash % n_buckets] : 0;
    if (i < first)
        return NULL;
    for (;; i++) {
        uint32_t word = chain[i - first];

        if ((word | 1) == (hash | 1)) {
            const ElfW(Sym) *symbol = match(tables, i, name);

            if (symbol)
                return symbol;
        }
        if (word & 1)
            return NULL;
    }
}

static const ElfW(Sym) * by_sysv_hash(const struct tables *tables, const char *name) {
    uint32_t n_buckets = tables->sysv[0];
    const uint32_t *buckets = tables->sysv + 2, *chain = buckets + n_buckets;

    if (n_buckets == 0)
        return NULL;
    for (uint32_t i = buckets[sysv_hash(name) % n_buckets]; i != STN_UNDEF; i = chain[i]) {
        const ElfW(Sym) *symbol = match(tables, i, name);

        if (symbol)
            return symbol;
    }
    return NULL;
}

void *elf_symbol(const struct elf_object *object, const char *name) {
    struct tables tables = { 0 };
    const ElfW(Dyn) *entry = object->dynamic;
    const ElfW(Sym) *symbol = NULL;
    uintptr_t address;

    if (!entry)
        return NULL;
    for (; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = at(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB)
            tables.strings = at(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_GNU_HASH)
            tables.gnu = at(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_HASH)
            tables.sysv = at(object, entry->d_un.d_ptr);
    }
    if (!tables.symbols || !tables.strings)
        return NULL;
    if (tables.gnu)
        symbol = by_gnu_hash(&tables, name);
    else if (tables.sysv)
        symbol = by_sysv_hash(&tables, name);
    if (!symbol)
        return NULL;
    address = (uintptr_t)object->base + symbol->st_value;
    if ((symbol->st_info & 0xf) == STT_GNU_IFUNC)
        address = ((uintptr_t(*)(void))address)();
    return (void *)address;
}
