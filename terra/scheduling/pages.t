local abi = require("terra.base.abi")
local check = require("terra.base.check")
local kv_event_ring = require("terra.scheduling.kv_event_ring")
local status = require("terra.base.status")
local C = abi.C

local none = -1

local struct Page {
  reference_count : int32
  is_registered : bool
  is_told : bool
  parent : int32
  num_children : int32
  newer : int32
  older : int32
  bucket_next : int32
  hash : uint64
}

local struct PagePool {
  capacity : int32
  num_pages : int32
  page_size : int32
  num_free : int32
  num_owned : int32
  num_cached : int32
  num_buckets : int32
  newest : int32
  oldest : int32
  hash_mask : uint64
  version : int64
  num_evictions : int64
  pages : &Page
  tokens : &int32
  free_pages : &int32
  buckets : &int32
  renamed : &int32
  move_sources : &int32
  move_destinations : &int32
  kv_events : kv_event_ring.KvEventRing
}

local terra allocate_indices(count : int64) : &int32
  return [&int32](C.calloc(terralib.select(count > 0, count, 1LL), sizeof(int32)))
end

local terra bucket_count(capacity : int32) : int32
  var count = 16
  while count < 2 * capacity and count < 1 << 29 do
    count = count * 2
  end
  return count
end

terra PagePool:refill_free_pages()
  self.num_free = 0
  for offset = 0, self.num_pages do
    var page = self.num_pages - 1 - offset
    if self.pages[page].reference_count == 0 and not self.pages[page].is_registered then
      self.free_pages[self.num_free] = page
      self.num_free = self.num_free + 1
    end
  end
end

terra PagePool:init(capacity : int32, page_size : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(PagePool))
  status.refuse(message, capacity < 0 or page_size < 1, "cannot create a pool of %d pages of %d tokens", capacity, page_size)
  self.capacity = capacity
  self.num_pages = capacity
  self.page_size = page_size
  self.num_buckets = bucket_count(capacity)
  self.hash_mask = not [uint64](0)
  self.newest = none
  self.oldest = none
  self.pages = [&Page](C.calloc(terralib.select(capacity > 0, capacity, 1), sizeof(Page)))
  self.tokens = allocate_indices([int64](capacity) * page_size)
  self.free_pages = allocate_indices(capacity)
  self.buckets = allocate_indices(self.num_buckets)
  self.renamed = allocate_indices(capacity)
  self.move_sources = allocate_indices(capacity)
  self.move_destinations = allocate_indices(capacity)
  if self.pages == nil or self.tokens == nil or self.free_pages == nil or self.buckets == nil
    or self.renamed == nil or self.move_sources == nil or self.move_destinations == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to track %d pages of %d tokens", capacity, page_size)
  end
  for bucket = 0, self.num_buckets do
    self.buckets[bucket] = none
  end
  self:refill_free_pages()
  return C.GLM_OK
end

terra PagePool:free()
  C.free(self.pages)
  C.free(self.tokens)
  C.free(self.free_pages)
  C.free(self.buckets)
  C.free(self.renamed)
  C.free(self.move_sources)
  C.free(self.move_destinations)
  self.kv_events:free()
  C.memset(self, 0, sizeof(PagePool))
end

terra PagePool:at(page : int32) : &Page
  check.bounds(page, self.num_pages)
  return &self.pages[page]
end

terra PagePool:tokens_of(page : int32) : &int32
  check.bounds(page, self.num_pages)
  return self.tokens + [int64](page) * self.page_size
end

require("terra.scheduling.kv_events")(PagePool, none)

terra PagePool:num_available() : int32
  return self.num_free + self.num_cached
end

terra PagePool:is_cached(page : int32) : bool
  return self:at(page).is_registered and self:at(page).reference_count == 0
end

terra PagePool:add_newest(page : int32)
  var entry = self:at(page)
  entry.newer = none
  entry.older = self.newest
  if self.newest == none then
    self.oldest = page
  else
    self.pages[self.newest].newer = page
  end
  self.newest = page
  self.num_cached = self.num_cached + 1
end

terra PagePool:remove_cached(page : int32)
  var entry = self:at(page)
  if entry.newer == none then
    self.newest = entry.older
  else
    self.pages[entry.newer].older = entry.older
  end
  if entry.older == none then
    self.oldest = entry.newer
  else
    self.pages[entry.older].newer = entry.newer
  end
  self.num_cached = self.num_cached - 1
end

terra PagePool:bucket_of(hash : uint64) : &int32
  return &self.buckets[hash and [uint64](self.num_buckets - 1)]
end

terra PagePool:unregister(page : int32)
  var entry = self:at(page)
  check.invariant(entry.num_children == 0, "a page with cached children left the prefix cache")
  var link = self:bucket_of(entry.hash)
  while @link ~= page do
    link = &self.pages[@link].bucket_next
  end
  @link = entry.bucket_next
  if entry.parent ~= none then
    var parent = self:at(entry.parent)
    parent.num_children = parent.num_children - 1
  end
  entry.is_registered = false
  self:tell(C.ENGINE_KV_REMOVED, page)
end

terra PagePool:add_free(page : int32)
  check.bounds(self.num_free, self.capacity)
  self.free_pages[self.num_free] = page
  self.num_free = self.num_free + 1
end

terra PagePool:evict_oldest()
  var page = self.oldest
  check.invariant(page ~= none, "a page was evicted from an empty prefix cache")
  self:remove_cached(page)
  self:unregister(page)
  self:add_free(page)
  self.num_evictions = self.num_evictions + 1
end

terra PagePool:acquire() : int32
  if self.num_free == 0 then
    if self.num_cached == 0 then
      return none
    end
    self:evict_oldest()
  end
  self.num_free = self.num_free - 1
  var page = self.free_pages[self.num_free]
  check.invariant(self:at(page).reference_count == 0, "a free page has an owner")
  check.invariant(not self:at(page).is_registered, "a free page is in the prefix cache")
  self:at(page).reference_count = 1
  self.num_owned = self.num_owned + 1
  return page
end

terra PagePool:retain(page : int32)
  var entry = self:at(page)
  if entry.reference_count == 0 then
    check.invariant(entry.is_registered, "a free page is shared")
    self:remove_cached(page)
    self.num_owned = self.num_owned + 1
  end
  entry.reference_count = entry.reference_count + 1
end

terra PagePool:release(page : int32)
  var entry = self:at(page)
  check.invariant(entry.reference_count > 0, "a page without an owner was released")
  entry.reference_count = entry.reference_count - 1
  self.version = self.version + 1
  if entry.reference_count > 0 then
    return
  end
  self.num_owned = self.num_owned - 1
  if entry.is_registered then
    self:add_newest(page)
  else
    self:add_free(page)
  end
end

terra PagePool:prefix_hash(parent : int32, tokens : &int32) : uint64
  var hash : uint64 = 0x243F6A8885A308D3ULL
  if parent ~= none then
    hash = self:at(parent).hash
  end
  for i = 0, self.page_size do
    hash = (hash ^ [uint64]([uint32](tokens[i]))) * 0x9E3779B97F4A7C15ULL
    hash = hash ^ (hash >> 32)
  end
  return hash and self.hash_mask
end

terra PagePool:find_hashed(parent : int32, tokens : &int32, hash : uint64) : int32
  var page = @self:bucket_of(hash)
  while page ~= none do
    var entry = self:at(page)
    if entry.hash == hash and entry.parent == parent
      and C.memcmp(self:tokens_of(page), tokens, self.page_size * sizeof(int32)) == 0 then
      return page
    end
    page = entry.bucket_next
  end
  return none
end

terra PagePool:find(parent : int32, tokens : &int32) : int32
  return self:find_hashed(parent, tokens, self:prefix_hash(parent, tokens))
end

terra PagePool:register(page : int32, parent : int32, tokens : &int32) : int32
  var hash = self:prefix_hash(parent, tokens)
  var existing = self:find_hashed(parent, tokens, hash)
  if existing ~= none then
    return existing
  end
  var entry = self:at(page)
  check.invariant(entry.reference_count > 0, "a page without an owner entered the prefix cache")
  check.invariant(not entry.is_registered, "a page entered the prefix cache twice")
  var bucket = self:bucket_of(hash)
  entry.hash = hash
  entry.parent = parent
  entry.num_children = 0
  entry.bucket_next = @bucket
  entry.is_registered = true
  @bucket = page
  if parent ~= none then
    check.invariant(self:at(parent).is_registered, "the parent of a cached page is not in the prefix cache")
    self:at(parent).num_children = self:at(parent).num_children + 1
  end
  C.memcpy(self:tokens_of(page), tokens, self.page_size * sizeof(int32))
  self.version = self.version + 1
  self:tell(C.ENGINE_KV_STORED, page)
  return page
end

terra PagePool:withdraw(page : int32) : bool
  var entry = self:at(page)
  if entry.num_children > 0 or entry.reference_count > 1 then
    return false
  end
  self:unregister(page)
  self.version = self.version + 1
  return true
end

terra PagePool:drop_cache()
  while self.oldest ~= none do
    self:evict_oldest()
  end
end

terra PagePool:count_cached_list() : int32
  var count, page, newer = 0, self.newest, none
  while page ~= none do
    check.invariant(self:is_cached(page), "the cached page list contains a page that is not cached")
    check.invariant(self:at(page).newer == newer, "the cached page list has inconsistent links")
    count = count + 1
    newer = page
    page = self:at(page).older
  end
  check.invariant(self.oldest == newer, "the cached page list has the wrong last page")
  return count
end

terra PagePool:count_registered() : int32
  var count = 0
  for bucket = 0, self.num_buckets do
    var page = self.buckets[bucket]
    while page ~= none do
      check.invariant(self:at(page).is_registered, "a page in the prefix cache is not registered")
      check.invariant(self:find(self:at(page).parent, self:tokens_of(page)) == page, "a lookup by tokens did not find a cached page")
      count = count + 1
      page = self:at(page).bucket_next
    end
  end
  return count
end

terra PagePool:is_consistent() : bool
  var num_free, num_owned, num_cached, num_registered, num_children, num_with_parent = 0, 0, 0, 0, 0, 0
  for page = 0, self.num_pages do
    var entry = self:at(page)
    if entry.reference_count > 0 then
      num_owned = num_owned + 1
    elseif entry.is_registered then
      num_cached = num_cached + 1
    else
      num_free = num_free + 1
    end
    if entry.is_registered then
      num_registered = num_registered + 1
      num_children = num_children + entry.num_children
      if entry.parent ~= none then
        num_with_parent = num_with_parent + 1
      end
    end
  end
  return num_free == self.num_free and num_owned == self.num_owned and num_cached == self.num_cached
    and num_free + num_owned + num_cached == self.num_pages
    and self:count_cached_list() == num_cached and self:count_registered() == num_registered
    and num_children == num_with_parent
end

require("terra.scheduling.compaction")(PagePool, Page, none)

return { PagePool = PagePool, none = none }
