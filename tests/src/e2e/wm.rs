//! What a window manager tells a window when a person clicks its close button.

use std::error::Error;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{AtomEnum, ClientMessageEvent, ConnectionExt as _, EventMask, MapState, Window};
use x11rb::rust_connection::RustConnection;

type Answer<T> = Result<T, Box<dyn Error>>;

x11rb::atom_manager! {
    /// Names of the protocol.
    Atoms: AtomsCookie { WM_PROTOCOLS, WM_DELETE_WINDOW, }
}

/// The window on a display that can be asked to close, once it is shown.
pub fn window(display: &str) -> Answer<Option<Window>> {
    let (connection, screen) = x11rb::connect(Some(display))?;
    let atoms = Atoms::new(&connection)?.reply()?;
    shown(&connection, connection.setup().roots[screen].root, &atoms)
}

/// Asks it to close.
pub fn close(display: &str) -> Answer<()> {
    let (connection, screen) = x11rb::connect(Some(display))?;
    let atoms = Atoms::new(&connection)?.reply()?;
    let root = connection.setup().roots[screen].root;
    let window = shown(&connection, root, &atoms)?.ok_or("no window can be closed")?;
    let words = [atoms.WM_DELETE_WINDOW, x11rb::CURRENT_TIME, 0, 0, 0];
    let message = ClientMessageEvent::new(32, window, atoms.WM_PROTOCOLS, words);
    connection.send_event(false, window, EventMask::NO_EVENT, message)?;
    // Answered only after everything before it has been carried out.
    connection.get_input_focus()?.reply()?;
    Ok(())
}

/// The first shown window below that knows how to be closed.
fn shown(connection: &RustConnection, window: Window, atoms: &Atoms) -> Answer<Option<Window>> {
    let known = connection.get_property(false, window, atoms.WM_PROTOCOLS, AtomEnum::ATOM, 0, 32)?.reply()?;
    let can_close = known.value32().is_some_and(|mut all| all.any(|atom| atom == atoms.WM_DELETE_WINDOW));
    if can_close && connection.get_window_attributes(window)?.reply()?.map_state == MapState::VIEWABLE {
        return Ok(Some(window));
    }
    for child in connection.query_tree(window)?.reply()?.children {
        if let Some(found) = shown(connection, child, atoms)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
