"""One short record for each figure, table and theorem; a file's path is its experiment's name."""
