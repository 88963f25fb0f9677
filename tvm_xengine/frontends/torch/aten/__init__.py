"""ATen operators whose conversion TVM's importer lacks, gets wrong, or makes hard to differentiate."""
