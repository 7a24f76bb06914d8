local layout = require("terra.weights_layout")
require("terra.weights_assign")
require("terra.weights_place")

return layout
