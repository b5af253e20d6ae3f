//! Cards in the window: they are there with what their driver says, doctor finds its libraries, a job runs on them, and one
//! that is lost costs a restart that is shown.

use super::acts::{number, state, submit};
use super::desk::{Desk, missing};
use crate::journeys::lab::Lab;
use serde_json::json;
use std::time::Duration;
use thirtyfour::prelude::*;
use virtual_gpu::{Fault, NvmlSpec, Script};

/// Kernels launched on a card before it is lost: some steps into the job.
const LAUNCHES: u64 = 1500;

fn two_cards() -> Script {
    let mut script = Script::with_devices(2, 2 << 30);
    for device in &mut script.devices {
        device.name = "NVIDIA Test Card".into();
    }
    // Too hot, by hardware, and with an error of its memory.
    script.devices[1].nvml =
        NvmlSpec { temperature: 92, throttle_reasons: 0x40, ecc_uncorrected: 2, ..NvmlSpec::default() };
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_card_costs_a_restart_that_is_shown() {
    if missing() {
        return;
    }
    let healthy = two_cards();
    let lost = Fault::DeviceLost { device: 1, launch: LAUNCHES, code: 46 };
    let Some(lab) = Lab::with_cards(&Script { faults: vec![lost], ..healthy.clone() }) else { return };
    let mut desk = Desk::beside(lab);
    desk.open(&[]).await;
    machine(&desk).await;
    let id = submit(&desk, "on two cards", 60).await;
    desk.click("nav-run").await;
    desk.find("[data-testid=mark][data-kind=restarted]").await;
    desk.lab.set_script(&healthy);
    state(&desk, "running").await;
    let (_, record) = desk.call("job", json!({ "id": id })).await;
    assert_eq!(record["plan"]["devices"], json!(["cuda:0", "cuda:1"]), "{record}");
    let step = number(&desk.text("run-step").await);
    desk.until_text("run-step", |text| number(text) > step + 2).await;
    assert!(desk.lab.log(&id).contains("\"device_lost\""), "{}", desk.lab.log(&id));
    desk.call("request", json!({ "id": id, "word": "stop" })).await;
    state(&desk, "stopped").await;
    the_restart_says_why(&desk).await;
}

/// The sign may stand for others of its moment too; a picture that is drawn anew in that moment loses a click.
async fn the_restart_says_why(desk: &Desk) {
    for _ in 0..20 {
        for mark in desk.page().find_all(By::Css("[data-testid=mark]")).await.unwrap() {
            let _ = mark.click().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let Ok(card) = desk.page().find(By::Css("[data-testid=mark-card]")).await else { continue };
            let text = card.text().await.unwrap_or_default();
            if text.contains("cuda:1 was lost") && text.contains("UNAVAILABLE") {
                return desk.picture("a-card-was-lost").await;
            }
        }
    }
    panic!("no sign says that a card was lost\n{}", desk.seen().await);
}

async fn machine(desk: &Desk) {
    desk.click("nav-machine").await;
    desk.until_text("gpu-cards", |text| {
        text.matches("NVIDIA Test Card").count() == 2 && text.contains("92 °C") && text.to_lowercase().contains("hot")
    })
    .await;
    desk.until_text("doctor", |text| ["NVRTC", "cuBLASLt", "NCCL"].iter().all(|name| text.contains(name))).await;
    desk.picture("machine-with-cards").await;
}
