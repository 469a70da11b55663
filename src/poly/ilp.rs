//! Scheduling by integer linear programming, band row by band row.
