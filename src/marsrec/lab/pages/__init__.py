"""Pages of the report, one file each, named after the page. A new one is a line in `marsrec.lab.report`."""
