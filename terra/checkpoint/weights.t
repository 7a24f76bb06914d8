local layout = require("terra.checkpoint.weights_layout")
require("terra.checkpoint.weights_assign")
require("terra.checkpoint.weights_place")

return layout
