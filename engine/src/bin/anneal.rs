//! `anneal`: the command line. Everything it does is an `Engine` call in the library; see `cli`.

fn main() {
    std::process::exit(engine::cli::main(std::env::args_os()));
}
