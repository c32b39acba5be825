"""What all benchmarks share: set-up and data sets (`setup`), tables (`report`), `new_process`."""
