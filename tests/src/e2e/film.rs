//! A moving picture of the whole screen: a job runs, its window is killed and gone, a new one shows the job further on.

use super::acts::{number, state, submit};
use super::desk::{Desk, missing};
use png::{BitDepth, ColorType, Compression, Encoder, Filter};
use std::path::Path;

/// What was on the screen at one moment.
pub struct Frame {
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// Red, green and blue of each.
    pub rgb: Vec<u8>,
}

impl Frame {
    /// Half as wide and high: each pixel is the mean of four.
    fn halved(&self) -> Frame {
        let (width, height) = (self.width / 2, self.height / 2);
        let at = |x: usize, y: usize, c: usize| u16::from(self.rgb[(y * self.width + x) * 3 + c]);
        let mean = |x: usize, y: usize, c: usize| {
            let four = at(x, y, c) + at(x + 1, y, c) + at(x, y + 1, c) + at(x + 1, y + 1, c);
            // Few shades pack into few bytes; nobody sees the difference.
            (((four + 2) / 4 + 2).min(255) & !3) as u8
        };
        let place = |n: usize| (n % width * 2, n / width * 2);
        let rgb = (0..width * height).flat_map(|n| [0, 1, 2].map(|c| mean(place(n).0, place(n).1, c))).collect();
        Frame { width, height, rgb }
    }
}

/// Writes frames, each with the milliseconds for which it is seen: a picture, or one that moves and begins again.
pub fn write(file: &Path, frames: &[(Frame, u16)]) {
    let size = &frames[0].0;
    let mut encoder = Encoder::new(std::fs::File::create(file).unwrap(), size.width as u32, size.height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(if frames.len() > 1 { Compression::High } else { Compression::Fast });
    encoder.set_filter(if frames.len() > 1 { Filter::NoFilter } else { Filter::Adaptive });
    if frames.len() > 1 {
        encoder.set_animated(frames.len() as u32, 0).unwrap();
    }
    let mut writer = encoder.write_header().unwrap();
    for (frame, delay) in frames {
        if frames.len() > 1 {
            writer.set_frame_delay(*delay, 1000).unwrap();
        }
        writer.write_image_data(&frame.rgb).unwrap();
    }
    writer.finish().unwrap();
}

/// A frame of the screen as it is now.
fn frame(desk: &Desk) -> Frame {
    desk.screen().picture().unwrap().halved()
}

/// Puts the window into the middle of the screen.
fn centre(desk: &Desk) {
    let screen = desk.screen();
    screen.place(screen.window("Anneal"), 80, 40);
}

/// Waits for the shown job to come this far and for that to be drawn.
async fn until_step(desk: &Desk, step: u64) -> u64 {
    let text = desk.until_text("run-step", |text| number(text) >= step).await;
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    number(&text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_killed_and_its_job_goes_on_before_all_eyes() {
    if missing() {
        return;
    }
    let mut desk = Desk::with_window().await;
    desk.screen().paper(0x2b_2f_38);
    centre(&desk);
    submit(&desk, "chat tuning", 20_000).await;
    desk.click("nav-run").await;
    state(&desk, "running").await;
    let mut frames = Vec::new();
    let mut step = 0;
    for _ in 0..3 {
        step = until_step(&desk, step + 150).await;
        frames.push((frame(&desk), 900));
    }
    desk.crash();
    let screen = desk.screen();
    assert!(crate::journeys::lab::until(super::desk::PATIENCE, || screen.windows().unwrap().is_empty()));
    let bare = frame(&desk);
    assert!(bare.rgb.as_chunks::<3>().0.iter().all(|pixel| pixel == &bare.rgb[..3]), "something is left on the screen");
    frames.push((bare, 1800));
    desk.open(&[]).await;
    centre(&desk);
    desk.click("nav-run").await;
    state(&desk, "running").await;
    // The whole curve, not only what came since.
    let begins =
        |text: &str| text.split("steps ").nth(1).map_or(0, |rest| number(rest.split(" to ").next().unwrap_or("")));
    desk.until_text("chart-summary", |text| (1..50).contains(&begins(text))).await;
    desk.until_text("run-step", |text| text.contains('/')).await;
    let mut later = step;
    for _ in 0..3 {
        later = until_step(&desk, later + 150).await;
        frames.push((frame(&desk), 1300));
    }
    assert!(later > step, "the job stood still at step {step}");
    let file = crate::source::root().join("target/screenshots/kill-and-reopen.png");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    write(&file, &frames);
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!((50_000..700_000).contains(&bytes), "{} frames take {bytes} bytes", frames.len());
}
