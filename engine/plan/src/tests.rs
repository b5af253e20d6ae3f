//! Whole plans and whole refusals: machine, model and wish in, decision out.
