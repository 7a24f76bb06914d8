local abi = require("terra.base.abi")
local check = require("terra.base.check")
local C = abi.C

return function(PagePool, Page, none)
  terra PagePool:plan_resize(num_pages : int32) : int32
    check.invariant(num_pages >= 0 and num_pages <= self.capacity, "the requested pool size is out of range")
    check.invariant(self.num_owned <= num_pages, "the page pool would shrink below the number of pages in use")
    while self.num_owned + self.num_cached > num_pages do
      self:evict_oldest()
    end
    var num_moves = 0
    var destination = 0
    for source = num_pages, self.num_pages do
      var entry = self:at(source)
      if entry.reference_count > 0 or entry.is_registered then
        while self.pages[destination].reference_count > 0 or self.pages[destination].is_registered do
          destination = destination + 1
        end
        self.move_sources[num_moves] = source
        self.move_destinations[num_moves] = destination
        num_moves = num_moves + 1
        destination = destination + 1
      end
    end
    return num_moves
  end

  terra PagePool:new_name(page : int32) : int32
    if page == none then
      return none
    end
    return self.renamed[page]
  end

  terra PagePool:rename_links(entry : &Page)
    if entry.is_registered then
      entry.parent = self:new_name(entry.parent)
      entry.bucket_next = self:new_name(entry.bucket_next)
      if entry.reference_count == 0 then
        entry.newer = self:new_name(entry.newer)
        entry.older = self:new_name(entry.older)
      end
    end
  end

  terra PagePool:commit_resize(num_pages : int32, num_moves : int32)
    for page = 0, self.capacity do
      self.renamed[page] = page
    end
    for i = 0, num_moves do
      var source, destination = self.move_sources[i], self.move_destinations[i]
      self.renamed[source] = destination
      self.pages[destination] = self.pages[source]
      C.memcpy(self:tokens_of(destination), self:tokens_of(source), self.page_size * sizeof(int32))
      C.memset(&self.pages[source], 0, sizeof(Page))
    end
    for page = 0, self.capacity do
      self:rename_links(&self.pages[page])
    end
    for bucket = 0, self.num_buckets do
      self.buckets[bucket] = self:new_name(self.buckets[bucket])
    end
    self.newest = self:new_name(self.newest)
    self.oldest = self:new_name(self.oldest)
    self.num_pages = num_pages
    self.version = self.version + 1
    self:refill_free_pages()
  end
end
