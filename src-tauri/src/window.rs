//! The one window: what it shows, where it may go (nowhere), what a drop grants, and how it closes.
//!
//! Not here: what the page asks (`commands`).

use crate::shell::Shell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tauri::webview::{NewWindowResponse, PageLoadEvent};
use tauri::{AppHandle, DragDropEvent, Emitter, Manager, Runtime, WebviewUrl, WebviewWindowBuilder, WindowEvent};

/// Title until the page sets one.
const TITLE: &str = "Anneal";

/// Opens the window.
pub fn open<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<()> {
    let window = WebviewWindowBuilder::new(app, "main", WebviewUrl::App("index.html".into()))
        .title(TITLE)
        .inner_size(1280.0, 820.0)
        .min_inner_size(1024.0, 700.0)
        .on_navigation(|address| address.scheme() == "tauri" && address.host_str() == Some("localhost"))
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .on_download(|_, _| false)
        .on_page_load(|window, load| {
            // A page that is loaded anew asks for nothing that an earlier one began.
            if load.event() == PageLoadEvent::Started {
                window.state::<Arc<Shell>>().calls.cancel_all();
            }
        })
        .build()?;
    let app = app.clone();
    window.on_window_event(move |event| match event {
        WindowEvent::DragDrop(DragDropEvent::Drop { paths, .. }) => {
            let shell = app.state::<Arc<Shell>>();
            paths.iter().for_each(|path| shell.grants.allow(path));
        }
        WindowEvent::CloseRequested { api, .. } => {
            // Whether jobs run is asked apart: the window goes on drawing meanwhile.
            api.prevent_close();
            let app = app.clone();
            tauri::async_runtime::spawn_blocking(move || close_or_ask(&app));
        }
        _ => {}
    });
    Ok(())
}

/// Closes, or lets the page say once that jobs go on without the window.
fn close_or_ask<R: Runtime>(app: &AppHandle<R>) {
    let shell = app.state::<Arc<Shell>>();
    let running = shell.engine(|engine| engine.alive()).map_or(0, |jobs| jobs.len());
    let warned = shell.warned.swap(true, Ordering::Relaxed);
    if running == 0 || warned || app.emit_to("main", "close-requested", running).is_err() {
        close(app);
    }
}

/// Closes without a question; that ends the program.
pub fn close<R: Runtime>(app: &AppHandle<R>) {
    match app.get_webview_window("main") {
        Some(window) => drop(window.destroy()),
        None => app.exit(0),
    }
}
