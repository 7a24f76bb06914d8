local abi = require("terra.base.abi")
local handles = require("terra.base.handles")
local hash = require("terra.base.hash")
local numbers = require("terra.base.numbers")
local rank = require("terra.ranks.rank")
local status = require("terra.base.status")
local C = abi.C

local Rank, call = rank.Rank, rank.call

local piece_bytes = 1048576
local smaller = numbers.smaller(int64)

local struct WeightHashes {
  hashes : &uint64
  bytes : &int64
}

local terra hash_pieces(self : &Rank, piece : &uint8, bytes : int64, result : &uint64, message : &C.glm_message) : int32
  var key = hash.Key { arrayof(uint64, 0, 0) }
  var done : int64 = 0
  while done < bytes do
    var size = smaller(piece_bytes, bytes - done)
    call(self, message, "download of weights", "download", piece, [&int8](self.weight_memory) + done, size)
    key.words[0] = hash.siphash13(key, piece, size)
    done = done + size
  end
  @result = key.words[0]
  return C.GLM_OK
end

local terra hash_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var found = [&WeightHashes](context)
  var piece = [&uint8](C.malloc(piece_bytes))
  status.fail_if(message, piece == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for %d bytes of weights", piece_bytes)
  var bytes = &found.bytes[self.index]
  if @bytes <= 0 or @bytes > self.weight_bytes then
    @bytes = self.weight_bytes
  end
  var code = hash_pieces(self, piece, @bytes, &found.hashes[self.index], message)
  C.free(piece)
  return code
end

return function(Engine)
  local terra engine_hash_weights(handle : &C.glm_engine, hashes : &uint64, bytes : &int64, message : &C.glm_message) : int32
    var engine = [&Engine](handles.find([handles.engine_kind], handle))
    status.refuse(message, engine == nil, "engine is null or already freed: expected a handle from init_engine")
    var found = WeightHashes { hashes, bytes }
    engine.loop:enter_turn()
    var code = engine.ranks:run(hash_job, &found, message)
    engine.loop:leave_turn()
    return code
  end

  return { probes = { engine_hash_weights = engine_hash_weights } }
end
