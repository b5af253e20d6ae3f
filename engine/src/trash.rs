//! Deleted jobs: run folders wait in `HOME/trash` for a grace period.
