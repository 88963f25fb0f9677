"""Parts of the site that are made from the sources when it is built."""
