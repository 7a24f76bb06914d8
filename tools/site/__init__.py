"""Pages of the documents' site that are made from the program each time the site is built."""
