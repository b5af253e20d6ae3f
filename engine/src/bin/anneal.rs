//! `anneal`: the command line. Everything it does is an `Engine` call in the library; see `cli`.

use clap::Parser;

fn main() {
    std::process::exit(engine::cli::run(engine::cli::Args::parse()));
}
