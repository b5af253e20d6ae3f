//! Journeys in the real window: the program as it is shipped, on a display of its own, driven as a person would.
//!
//! Not here: journeys on the command line (`journeys`), the page's own tests (`ui`). Without Xvfb and WebKitWebDriver these
//! tests say that they are left out.

mod acts;
mod arrival;
mod bus;
mod calls;
mod cards;
mod closing;
mod desk;
mod export;
mod film;
mod guard;
mod hands;
mod hostile;
mod markup;
mod notices;
mod payloads;
mod places;
mod real;
mod record;
mod refused;
mod screen;
mod single;
mod speed;
mod trouble;
mod ways_in;
mod windows;
mod wm;
mod xdnd;
