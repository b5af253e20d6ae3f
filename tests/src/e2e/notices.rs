//! A job that ends by itself while nobody looks at it is told to the desktop, and the notification leads to it.

use super::acts::{number, submit};
use super::bus::{Notices, bus};
use super::desk::{Desk, missing};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_by_itself_notifies_and_a_click_opens_it() {
    if missing() {
        return;
    }
    let mut desk = Desk::new();
    let Some((_bus, address)) = bus(&desk) else {
        println!("skipped: dbus-daemon is not installed");
        return;
    };
    let notices = Notices::serve(&address);
    desk.set("DBUS_SESSION_BUS_ADDRESS", &address);
    desk.open(&[]).await;
    desk.click("nav-machine").await;
    submit(&desk, "ends <b>by itself", 400).await;
    desk.until_text("rail-job", |text| text.contains("by itself")).await;
    desk.picture("machine-with-a-job").await;
    let notice = notices.next();
    assert!(notice.title.contains("ends <b>by itself") && notice.title.contains("done"), "{notice:?}");
    assert!(notice.body.contains("400"), "{notice:?}");
    desk.until_text("toast", |text| text.contains("by itself")).await;
    desk.picture("ended-elsewhere").await;
    // Another job is newer: it is not that one that opens.
    let second = submit(&desk, "another", 20_000).await;
    desk.until_text(&format!("[data-testid=rail-job][data-job=\"{second}\"]"), |text| text.contains("another")).await;
    notices.click(&notice);
    desk.find("place-run").await;
    desk.find("[data-testid=run-state][data-state=finished]").await;
    desk.until_text("run-step", |text| number(text) == 400).await;

    // One that was stopped on purpose calls nobody.
    desk.click("nav-machine").await;
    desk.call("request", serde_json::json!({ "id": second, "word": "stop" })).await;
    desk.until_text("toast", |text| text.contains("another stopped")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(notices.more().is_empty());
}
