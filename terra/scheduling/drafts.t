local numbers = require("terra.base.numbers")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")

local Sequence = sequence.Sequence

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)

return function(Scheduler)
  terra Scheduler:own_pages_for_drafts(item : &Sequence, wanted : int32) : int32
    var page_size = self.options.engine.page_size
    while item.pages.size * page_size < item:next_length() + wanted do
      var page = self.pool:acquire()
      if page == [pages.none] then
        return smaller(wanted, [int32](item.pages.size) * page_size - item:next_length())
      end
      self:push_page(item, page)
    end
    return wanted
  end

  terra Scheduler:spare_decode_rows() : int32
    var admitted = smaller([int32](self.waiting.size), [int32](self.free_rows.size))
    return greater(self.step.shape:most_decode_rows() - [int32](self.running.size) - admitted, 0)
  end

  terra Scheduler:choose_drafts()
    var spare = self:spare_decode_rows()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      var most = smaller(smaller(item:most_drafts(), self.step.shape.rows_per_sequence - 1), spare)
      item.num_drafts = 0
      if most > 0 and self:wants_decode_row(item) then
        item.num_drafts = self:own_pages_for_drafts(item, most)
        spare = spare - item.num_drafts
      end
    end
  end
end
