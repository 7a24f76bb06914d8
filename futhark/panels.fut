def panel_columns : i64 = 64

def num_panels (columns: i64) : i64 = (columns + panel_columns - 1) / panel_columns
