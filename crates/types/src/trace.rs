//! Which trace something belongs to, as W3C Trace Context (level 1) says it in the headers `traceparent` and `tracestate`.
//!
//! A `traceparent` is `00-<trace id>-<span id>-<flags>`, in lower-case hexadecimal digits. Later versions may add fields
//! behind these, which are ignored.
//!
//! Bounds: a `tracestate` has at most [`TRACE_STATE_BYTES_MAX`] bytes; a longer one is dropped, as the specification allows.
//!
//! Source: <https://www.w3.org/TR/trace-context-1/>.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most bytes of a `tracestate`.
pub const TRACE_STATE_BYTES_MAX: usize = 512;

/// The bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
/// The flag that says that the caller records the trace.
const SAMPLED: u8 = 1;

/// Names a trace; never all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Names a span of a trace; never all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A place in a trace: what is done next belongs to `span`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that what follows is a part of.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// What other tracing systems keep with the trace (`tracestate`).
    pub state: Option<Box<str>>,
}

impl TraceContext {
    /// With this `tracestate`, if it can be kept.
    #[must_use]
    pub fn with_state(self, state: &str) -> Self {
        let is_right = (1..=TRACE_STATE_BYTES_MAX).contains(&state.len())
            && state.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
        Self { state: is_right.then(|| state.into()), ..self }
    }

    /// The same place, one span further in.
    #[must_use]
    pub fn within(&self, span: SpanId) -> Self {
        Self { span, ..self.clone() }
    }

    /// The id of a span within this one, always the same for the same `part`. So a span has its id before it begins, and
    /// still after a restart.
    #[must_use]
    pub fn part(&self, part: u64) -> SpanId {
        // SplitMix64 (Steele, Lea, Flood 2014): a bijection, so different parts have different ids.
        let mut mixed = u64::from_be_bytes(self.span.0).wrapping_add(part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        SpanId((mixed ^ (mixed >> 31)).max(1).to_be_bytes())
    }
}

/// The value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// The text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a traceparent of W3C Trace Context, such as \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\""
)]
pub struct TraceParentError;

impl FromStr for TraceContext {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        read(text.as_bytes()).ok_or(TraceParentError)
    }
}

fn read(text: &[u8]) -> Option<TraceContext> {
    let (known, rest) = text.split_at_checked(PARENT_BYTES)?;
    let [version] = digits::<1>(&known[..2])?;
    let is_right_end = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    let are_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    let (trace, span) = (digits::<16>(&known[3..35])?, digits::<8>(&known[36..52])?);
    let [flags] = digits::<1>(&known[53..])?;
    let is_right = is_right_end && are_dashes && trace != [0; 16] && span != [0; 8];
    let is_sampled = flags & SAMPLED != 0;
    is_right.then_some(TraceContext { trace: TraceId(trace), span: SpanId(span), is_sampled, state: None })
}

/// The bytes that lower-case hexadecimal digits spell.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The form in durable rows.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    parent: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<std::borrow::Cow<'a, str>>,
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Row { parent: self.to_string().into(), state: self.state.as_deref().map(Into::into) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Row { parent, state } = Row::deserialize(deserializer)?;
        let context: Self = parent.parse().map_err(serde::de::Error::custom)?;
        Ok(match state {
            Some(state) => context.with_state(&state),
            None => context,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_as_the_specification_says() {
        let context: TraceContext = GIVEN.parse().unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        assert_eq!(context.to_string(), GIVEN);
        let later = format!("cc{}", &GIVEN[2..]);
        for (text, is_sampled) in [
            (GIVEN.replace("-01", "-00"), Some(false)),
            (GIVEN.replace("-01", "-ff"), Some(true)),
            (later.clone(), Some(true)),
            (format!("{later}-what-the-future-will-be-like"), Some(true)),
            (format!("{later}.what"), None),
            (format!("{GIVEN}-more"), None),
            (GIVEN.to_uppercase(), None),
            (GIVEN.replace("00-", "ff-"), None),
            (GIVEN.replace("b7ad6b7169203331", "0000000000000000"), None),
            (GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), None),
            (GIVEN.replacen('-', "_", 1), None),
            (GIVEN[..54].to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(text.parse::<TraceContext>().ok().map(|context| context.is_sampled), is_sampled, "{text}");
        }
    }

    #[test]
    fn a_state_is_kept_up_to_its_limit() {
        let context = || GIVEN.parse::<TraceContext>().unwrap();
        assert_eq!(
            context().with_state("rojo=00f067aa0ba902b7,congo=t61").state.as_deref(),
            Some("rojo=00f067aa0ba902b7,congo=t61")
        );
        for wrong in [String::new(), "a".repeat(513), "a=ä".to_owned(), "a=\n".to_owned()] {
            assert_eq!(context().with_state(&wrong).state, None, "{wrong}");
        }
    }

    #[test]
    fn the_form_in_rows_is_read_back() {
        let context = GIVEN.parse::<TraceContext>().unwrap().with_state("a=b");
        let row = serde_json::to_string(&context).unwrap();
        assert_eq!(row, format!(r#"{{"parent":"{GIVEN}","state":"a=b"}}"#));
        assert_eq!(serde_json::from_str::<TraceContext>(&row).unwrap(), context);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "[0-9a-fg-]{0,70}|.{0,60}|[0-9a-f]{2}-[0-9a-f]{31,32}-[0-9a-g]{16}-[0-9a-f]{2}(-[a-z]{0,3})?",
        ) {
            if let Ok(context) = text.parse::<TraceContext>() {
                prop_assert_eq!(&context.to_string()[3..52], &text[3..52]);
            }
        }

        #[test]
        fn what_is_written_is_read_back(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), is_sampled: bool) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let context = TraceContext { trace: TraceId(trace), span: SpanId(span), is_sampled, state: None };
            prop_assert_eq!(context.to_string().parse::<TraceContext>(), Ok(context));
        }

        #[test]
        fn parts_have_ids_of_their_own(span in 1_u64.., a in 0_u64..64, b in 0_u64..64) {
            let context = GIVEN.parse::<TraceContext>().unwrap().within(SpanId(span.to_be_bytes()));
            prop_assert_eq!(context.part(a) == context.part(b), a == b);
        }
    }
}
