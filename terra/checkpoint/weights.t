local layout = require("terra.checkpoint.weights_layout")
require("terra.checkpoint.weights_assign")
require("terra.checkpoint.weights_place")
require("terra.checkpoint.weights_random")

return layout
