//! A drag source in pure X11: what a file manager sends when a person drops files on a window (XDND version 5).

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, PropMode,
    SELECTION_NOTIFY_EVENT, SelectionNotifyEvent, SelectionRequestEvent, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

type Answer<T> = Result<T, Box<dyn Error>>;

x11rb::atom_manager! {
    /// Names of the protocol.
    Atoms: AtomsCookie {
        XdndAware, XdndSelection, XdndEnter, XdndPosition, XdndStatus, XdndDrop, XdndLeave, XdndFinished,
        XdndActionCopy, TARGETS, URIS: b"text/uri-list",
    }
}

/// What a drag does at its end.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    /// Lets go over the window.
    Drop,
    /// Leaves the window again.
    Leave,
}

/// Drags paths over the first window that takes drops, to (x, y) of it, and holds them there for as long as `held` takes.
/// True where the window accepted them.
pub fn drag(display: &str, paths: &[&Path], at: (i16, i16), held: impl FnOnce(), end: End) -> Answer<bool> {
    let (connection, screen) = x11rb::connect(Some(display))?;
    let atoms = Atoms::new(&connection)?.reply()?;
    let root = connection.setup().roots[screen].root;
    let target = aware(&connection, root, atoms.XdndAware)?.ok_or("no window takes drops")?;
    let source = connection.generate_id()?;
    let events = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE);
    connection.create_window(0, source, root, 0, 0, 1, 1, 0, WindowClass::INPUT_ONLY, 0, &events)?;
    connection.set_selection_owner(source, atoms.XdndSelection, x11rb::CURRENT_TIME)?;
    let place = connection.translate_coordinates(target, root, at.0, at.1)?.reply()?;
    let body: String = paths.iter().map(|path| format!("file://{}\r\n", encoded(path))).collect();
    let drag = Drag { connection, atoms, source, target, body };
    drag.send(drag.atoms.XdndEnter, [source, 5 << 24, drag.atoms.URIS, 0, 0])?;
    let accepted = drag.hover(place.dst_x, place.dst_y)?;
    held();
    drag.end(end, accepted)
}

struct Drag {
    connection: RustConnection,
    atoms: Atoms,
    source: Window,
    target: Window,
    body: String,
}

impl Drag {
    /// Moves over the window until it accepts: it does so only once it has seen the paths.
    fn hover(&self, x: i16, y: i16) -> Answer<bool> {
        let mut accepted = false;
        for step in 0..40i16 {
            let place = ((x + step % 5) as u32) << 16 | (y as u32 & 0xffff);
            let now = x11rb::CURRENT_TIME;
            self.send(self.atoms.XdndPosition, [self.source, 0, place, now, self.atoms.XdndActionCopy])?;
            if let Some(status) = self.wait_for(self.atoms.XdndStatus, Duration::from_secs(2))? {
                accepted = status.data.as_data32()[1] & 1 == 1;
            }
            if accepted && step >= 5 {
                break;
            }
            self.wait_for(x11rb::NONE, Duration::from_millis(30))?;
        }
        Ok(accepted)
    }

    fn end(&self, end: End, accepted: bool) -> Answer<bool> {
        if end == End::Leave {
            self.send(self.atoms.XdndLeave, [self.source, 0, 0, 0, 0])?;
            self.wait_for(x11rb::NONE, Duration::from_millis(200))?;
            return Ok(accepted);
        }
        self.send(self.atoms.XdndDrop, [self.source, 0, x11rb::CURRENT_TIME, 0, 0])?;
        let finished = self.wait_for(self.atoms.XdndFinished, Duration::from_secs(5))?;
        Ok(finished.is_some_and(|message| message.data.as_data32()[1] & 1 == 1))
    }

    fn send(&self, kind: Atom, words: [u32; 5]) -> Answer<()> {
        let message = ClientMessageEvent::new(32, self.target, kind, words);
        self.connection.send_event(false, self.target, EventMask::NO_EVENT, message)?;
        Ok(self.connection.flush()?)
    }

    /// Serves the paths to whoever asks until a message of this kind comes or the time is over.
    fn wait_for(&self, kind: Atom, limit: Duration) -> Answer<Option<ClientMessageEvent>> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            match self.connection.poll_for_event()? {
                Some(Event::SelectionRequest(request)) => self.serve(&request)?,
                Some(Event::ClientMessage(message)) if message.type_ == kind => return Ok(Some(message)),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(3)),
            }
        }
        Ok(None)
    }

    fn serve(&self, request: &SelectionRequestEvent) -> Answer<()> {
        let (asker, property) = (request.requestor, request.property);
        let known = [self.atoms.TARGETS, self.atoms.URIS].contains(&request.target);
        if request.target == self.atoms.TARGETS {
            self.connection.change_property32(
                PropMode::REPLACE,
                asker,
                property,
                AtomEnum::ATOM,
                &[self.atoms.URIS],
            )?;
        } else if known {
            self.connection.change_property8(
                PropMode::REPLACE,
                asker,
                property,
                self.atoms.URIS,
                self.body.as_bytes(),
            )?;
        }
        let told = SelectionNotifyEvent {
            response_type: SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: request.time,
            requestor: asker,
            selection: request.selection,
            target: request.target,
            property: if known { property } else { x11rb::NONE },
        };
        self.connection.send_event(false, asker, EventMask::NO_EVENT, told)?;
        Ok(self.connection.flush()?)
    }
}

/// The first window below that takes drops.
fn aware(connection: &RustConnection, window: Window, property: Atom) -> Answer<Option<Window>> {
    if connection.get_property(false, window, property, AtomEnum::ANY, 0, 1)?.reply()?.value_len > 0 {
        return Ok(Some(window));
    }
    for child in connection.query_tree(window)?.reply()?.children {
        if let Some(found) = aware(connection, child, property)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A path as it stands in an address.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes.map(|b| if plain(*b) { (*b as char).to_string() } else { format!("%{b:02X}") }).collect()
}
