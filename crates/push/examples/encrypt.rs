//! Encrypts for browsers, for the judges in `conformance/`: a JSON object per line, both ways.
//!
//! In: `{"seq", "p256dh", "auth", "text"}`, and for a reproducible answer `"private"` and `"salt"`. Out: a first line
//! `{"hello": true}`, then per line `{"seq", "body"}` or `{"seq", "error"}`. Keys, text and body are base64url.

use std::io::{self, BufRead as _, Write as _};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings_push::web_push::encryption::{SenderKey, encrypt};

#[derive(Deserialize)]
struct Line {
    seq: Value,
    p256dh: String,
    auth: String,
    text: String,
    private: Option<String>,
    salt: Option<String>,
}

fn main() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", json!({"hello": true}))?;
    for line in io::stdin().lock().lines() {
        let line: Line = serde_json::from_str(&line?)?;
        let answer = match body(&line) {
            Ok(body) => json!({"seq": line.seq, "body": BASE64_URL_SAFE_NO_PAD.encode(body)}),
            Err(error) => json!({"seq": line.seq, "error": error}),
        };
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn body(line: &Line) -> Result<Vec<u8>, String> {
    let text = BASE64_URL_SAFE_NO_PAD.decode(&line.text).map_err(|error| error.to_string())?;
    let salt = line.salt.as_deref().map_or_else(|| Ok(random()), bytes)?;
    let sender = match &line.private {
        Some(private) => SenderKey::new(&bytes(private)?).ok_or("no private key")?,
        None => SenderKey::from_random(&mut fill),
    };
    encrypt(&text, &bytes(&line.p256dh)?, &bytes(&line.auth)?, &sender, &salt).map_err(|error| error.to_string())
}

fn bytes<const LENGTH: usize>(text: &str) -> Result<[u8; LENGTH], String> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string())?;
    bytes.try_into().map_err(|_| format!("not {LENGTH} bytes"))
}

fn fill(bytes: &mut [u8]) {
    rand::fill(bytes).expect("the system has random numbers");
}

fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    fill(&mut bytes);
    bytes
}
