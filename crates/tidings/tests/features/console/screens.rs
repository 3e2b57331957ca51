//! The browsers of a scenario: one for each person who uses the console.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Console;
use crate::chromium::Chromium;

#[derive(Default)]
pub(crate) struct Screens {
    chromium: Option<Arc<Chromium>>,
    consoles: BTreeMap<String, Console>,
}

impl Screens {
    /// The Chromium of the run, to open browsers with.
    pub(crate) fn lend(&mut self, chromium: Arc<Chromium>) {
        self.chromium = Some(chromium);
    }

    pub(crate) fn has(&self, person: &str) -> bool {
        self.consoles.contains_key(person)
    }

    /// Somebody's browser; at first it shows the log-in of the server at this address.
    pub(crate) async fn of(&mut self, person: &str, addr: SocketAddr) -> &Console {
        if !self.has(person) {
            let chromium = self.chromium.as_ref().expect("the run has lent it");
            self.consoles.insert(person.to_owned(), Console::open(chromium, addr).await);
        }
        &self.consoles[person]
    }

    /// What all of them show, as PNG. One that cannot show anything has no picture.
    pub(crate) async fn pictures(&self) -> Vec<Vec<u8>> {
        let mut pictures = Vec::new();
        for console in self.consoles.values() {
            pictures.extend(console.picture().await);
        }
        pictures
    }

    pub(crate) async fn close(&mut self) {
        for console in std::mem::take(&mut self.consoles).into_values() {
            console.close().await;
        }
    }
}
