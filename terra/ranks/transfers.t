local abi = require("terra.base.abi")
local rank = require("terra.ranks.rank")
local C = abi.C

local Rank, call = rank.Rank, rank.call

return function(RankGroup)
  local terra copy_pages_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var args = @[&C.glm_copy_pages_args](context)
    args.cache = &self.cache
    call(self, message, "copy_pages", "copy_pages", &args)
    return C.GLM_OK
  end

  terra RankGroup:copy_pages(num_pages : int32, source : &int32, destination : &int32, message : &C.glm_message) : int32
    var args = C.glm_copy_pages_args { cache = nil, num_pages = num_pages, source_pages = source, destination_pages = destination }
    return self:run(copy_pages_job, &args, message)
  end

  local struct PageTransfer {
    args : C.glm_transfer_pages_args
    bytes_per_page : int64
    is_restore : bool
  }

  local terra transfer_pages_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var transfer = [&PageTransfer](context)
    var args = transfer.args
    args.cache = &self.cache
    args.host_data = [&int8](args.host_data) + transfer.bytes_per_page * args.num_pages * self.index
    if transfer.is_restore then
      call(self, message, "restore_pages", "restore_pages", &args)
    else
      call(self, message, "save_pages", "save_pages", &args)
    end
    call(self, message, "transfer of pages", "synchronise")
    return C.GLM_OK
  end

  terra RankGroup:rank_page_bytes() : int64
    var bytes : int64 = 0
    self.backend.kv_page_bytes(&self.ranks[0].cache, &bytes)
    return bytes
  end

  terra RankGroup:page_host_bytes() : int64
    return self:rank_page_bytes() * self.world_size
  end

  terra RankGroup:transfer_pages(is_restore : bool, num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
    var transfer : PageTransfer
    transfer.args = C.glm_transfer_pages_args { cache = nil, num_pages = num_pages, pages = pages, host_data = host }
    transfer.bytes_per_page = self:rank_page_bytes()
    transfer.is_restore = is_restore
    return self:run(transfer_pages_job, &transfer, message)
  end

  terra RankGroup:save_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
    return self:transfer_pages(false, num_pages, pages, host, message)
  end

  terra RankGroup:restore_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
    return self:transfer_pages(true, num_pages, pages, host, message)
  end

  local terra count_tokens_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
    var args = @[&C.glm_count_tokens_args](context)
    args.counts = self.buffers.counts
    args.vocab_size = self.config.vocab_size
    if args.num_tokens > 0 then
      call(self, message, "penalty token upload", "upload", self.buffers.count_tokens, args.token_ids, [int64](args.num_tokens) * sizeof(int32))
    end
    args.token_ids = self.buffers.count_tokens
    call(self, message, "count_tokens", "count_tokens", &args)
    return C.GLM_OK
  end

  local terra as_flag(value : bool) : int32
    return terralib.select(value, 1, 0)
  end

  terra RankGroup:count_tokens(
    row : int32,
    reset : bool,
    from_prompt : bool,
    num_tokens : int32,
    tokens : &int32,
    message : &C.glm_message
  ) : int32
    var args : C.glm_count_tokens_args
    args.counts = nil
    args.vocab_size = 0
    args.count_row = row
    args.num_tokens = num_tokens
    args.token_ids = tokens
    args.from_prompt = as_flag(from_prompt)
    args.reset = as_flag(reset)
    return self:run(count_tokens_job, &args, message)
  end
end
