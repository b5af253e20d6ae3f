//! The hostile collection dropped on the window: every item is told with its reason on a card of its own, and the window goes
//! on as if nothing had happened.

use super::desk::{Desk, missing};
use crate::journeys::hostile::{Item, items};
use crate::journeys::lab::golden;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Texts and hover texts of all cards.
const CARDS: &str = r#"
    const cards = document.querySelectorAll("[data-testid=refused-item], [data-testid=data-card], [data-testid=model-card]");
    const hints = (card) => [...card.querySelectorAll("[title]")].map((inside) => inside.title).join(" ");
    return [...cards].map((card) => card.textContent + " " + hints(card));
"#;
/// Longest wait for all of them.
const PATIENCE: Duration = Duration::from_secs(120);

async fn cards(desk: &Desk) -> Vec<String> {
    let all = desk.script(CARDS).await;
    all.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The card that names a file or folder.
fn card<'a>(cards: &'a [String], path: &Path) -> Option<&'a String> {
    let path = path.to_str().unwrap();
    cards.iter().find(|text| text.contains(path))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_item_that_is_dropped_is_told_with_its_reason() {
    if missing() {
        return;
    }
    let desk = Desk::with_window().await;
    desk.find("new-empty").await;
    // What shows only when a model is used takes the one place there is for a model; `refused.rs` has such a plan.
    let dropped: Vec<(Item, PathBuf)> = items()
        .into_iter()
        .filter(|item| !item.drop_as.contains("then") && item.id != "D-ok6")
        .map(|item| {
            let path = item.place(&desk.lab.path(&item.id));
            (item, path)
        })
        .collect();
    let paths: Vec<&Path> = dropped.iter().map(|(_, path)| path.as_path()).collect();
    desk.drop_paths(&paths).await;
    let begun = Instant::now();
    let told = loop {
        let told = cards(&desk).await;
        if dropped.iter().all(|(_, path)| card(&told, path).is_some()) {
            break told;
        }
        let silent: Vec<&str> =
            dropped.iter().filter(|(_, path)| card(&told, path).is_none()).map(|(item, _)| item.id.as_str()).collect();
        assert!(begun.elapsed() < PATIENCE, "nothing is said of {silent:?}\n{}", desk.seen().await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    for (item, path) in &dropped {
        let said = card(&told, path).unwrap();
        match item.verdict.as_str() {
            "reject" | "reject_or_warn" => item.check_words(said),
            _ => println!("{}: {said:.80}", item.id),
        }
    }
    desk.picture("hostile").await;
    assert!(desk.script("return window.__xss === undefined;").await.as_bool().unwrap());
    // And on it goes.
    desk.drop_paths(&[&golden("models/llama")]).await;
    desk.until_text("model-card", |text| text.contains("llama")).await;
}
