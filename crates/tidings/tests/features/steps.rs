//! The sentences of the features. A name is spelt as in the sentence: `Ada's phone`, `Ada`.

#[path = "steps/apps.rs"]
mod apps;
#[path = "steps/backend.rs"]
mod backend;
#[path = "steps/channels.rs"]
mod channels;
#[path = "steps/console.rs"]
mod console;
#[path = "steps/console_actions.rs"]
mod console_actions;
#[path = "steps/devices.rs"]
mod devices;
#[path = "steps/feeds.rs"]
mod feeds;
#[path = "steps/google.rs"]
mod google;
#[path = "steps/operation.rs"]
mod operation;
#[path = "steps/operator.rs"]
mod operator;
#[path = "steps/phones.rs"]
mod phones;
#[path = "steps/reports.rs"]
mod reports;
#[path = "steps/sending.rs"]
mod sending;
#[path = "steps/texts.rs"]
mod texts;
#[path = "steps/why.rs"]
mod why;

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use cucumber::Parameter;

use crate::server::Place;

/// A phone, tablet or browser, called by whose it is: "Ada's phone".
#[derive(Parameter)]
#[param(name = "phone", regex = r"[A-Z][a-z]+'s (?:phone|tablet|Android phone|browser)")]
struct PhoneName(String);

/// Somebody: "Ada".
#[derive(Parameter)]
#[param(name = "person", regex = r"[A-Z][a-z]+")]
struct Person(String);

impl Person {
    /// Their phone.
    fn phone(&self) -> String {
        format!("{}'s phone", self.0)
    }
}

/// One of several servers: "the second server".
#[derive(Parameter)]
#[param(name = "place", regex = r"the server that leads|the first server|the second server|the third server")]
struct PlaceName(String);

impl From<PlaceName> for Place {
    fn from(PlaceName(name): PlaceName) -> Self {
        match name.as_str() {
            "the server that leads" => Self::Leading,
            "the first server" => Self::Started(0),
            "the second server" => Self::Started(1),
            "the third server" => Self::Started(2),
            _ => panic!("there is no server called {name:?}"),
        }
    }
}

/// All are the text of the sentence.
macro_rules! text {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = Infallible;

            fn from_str(text: &str) -> Result<Self, Infallible> {
                Ok(Self(text.to_owned()))
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text!(PhoneName);
text!(Person);
text!(PlaceName);
