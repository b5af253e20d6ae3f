//! What a trainer says never decides what it does.

use std::process::{Command, Stdio};

#[test]
fn a_trainer_whose_listener_is_gone_ends_as_it_would_have() {
    let (listener, pipe) = std::io::pipe().expect("a pipe");
    drop(listener);
    let mut trainer = Command::new(env!("CARGO_BIN_EXE_anneal-trainer"));
    let status = trainer.arg("nonsense").stdin(Stdio::null()).stdout(Stdio::null()).stderr(pipe).status();
    assert_eq!(status.expect("a process").code(), Some(2), "wrong usage, not a panic");
}
