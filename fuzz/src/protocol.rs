//! What clients send: WebSocket frames, commands, tokens, what they say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use tidings_protocol::token::{Token, TokenSecret, TokenVerifier, sign_connection_token};
use tidings_protocol::websocket::{self, Decoder, Event};
use tidings_protocol::{
    Admission, CREDENTIAL_BYTES_MAX, ClientId, Command, ConnectEffect, DeviceClaim, Effect, EmulationRequest,
    ErrorCode, FILTER_BYTES_MAX, FRAME_COMMAND_COUNT_MAX, FilterError, FrameError, NamespaceOptions, Namespaces,
    RPC_VISIBLE, Session, SessionConfig, SessionId, SubscribeEffect, Subscribed, Tags, TagsFilter, UnreadFilter,
    VISIBLE_TTL_MAX, parse_connect, parse_frame,
};
use tidings_types::{Epoch, Format, Json, Offset, StreamPosition, Timestamp, Variant};

pub(crate) const NOW: Timestamp = Timestamp(1_000_000);
const SECRET: &[u8] = b"secret";

pub(crate) fn secret() -> TokenSecret {
    TokenSecret::new(SECRET).expect("it is not empty")
}

pub(crate) fn config(namespaces: Namespaces) -> SessionConfig {
    SessionConfig {
        namespaces,
        token_verifier: Some(TokenVerifier::new(&secret(), None)),
        allow_anonymous: true,
        insecure: false,
        hooks: Default::default(),
        channel_count_max: 4,
        personal_channels: None,
        ping_interval: Duration::from_secs(25),
        version: "1".to_owned(),
    }
}

/// A frame's commands: only the last may be bad, and each is what it would be alone.
pub(crate) fn frame(bytes: &[u8]) {
    let commands: Vec<Result<Command, FrameError>> = parse_frame(Format::Json, bytes).collect();
    assert!((1..=FRAME_COMMAND_COUNT_MAX + 1).contains(&commands.len()), "{} commands", commands.len());
    assert!(commands[..commands.len() - 1].iter().all(Result::is_ok), "nothing follows a bad command");
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n');
    for (line, command) in lines.zip(&commands).take(FRAME_COMMAND_COUNT_MAX) {
        let alone = parse_frame(Format::Json, line).next().expect("a frame has a command or an error");
        assert_eq!(format!("{alone:?}"), format!("{command:?}"), "alone, and among others");
    }
    if parse_connect(bytes).is_ok() && !bytes.trim_ascii().is_empty() && !bytes.contains(&b'\n') {
        let command = [br#"{"id":1,"connect":"#, bytes, b"}"].concat();
        let command = parse_frame(Format::Json, &command).next().expect("a frame has a command or an error");
        assert!(
            matches!(command, Ok(_) | Err(FrameError::TooDeep(_))),
            "what connects by itself connects in a command"
        );
    }
}

/// The body of a request with commands: no larger than it came, and a session has one name.
pub(crate) fn emulation(bytes: &[u8]) {
    for format in Format::ALL {
        let Ok(request) = EmulationRequest::parse(format, bytes) else { continue };
        let EmulationRequest { node, session, data } = request;
        assert!(node.len() + session.len() + data.len() <= bytes.len());
        if let Ok(id) = session.parse::<SessionId>() {
            assert_eq!(id.to_string(), session);
        }
        assert!(parse_frame(format, &data).count() <= FRAME_COMMAND_COUNT_MAX + 1);
    }
}

/// A tags filter: what is read is within its bounds, and its opposite wants exactly what it does not want.
pub(crate) fn filter(bytes: &[u8]) {
    if bytes.len() > FILTER_BYTES_MAX {
        let unread = UnreadFilter::Protobuf(bytes.to_vec());
        return assert_eq!(TagsFilter::read(&unread), Err(FilterError::TooLarge));
    }
    if let Ok(json) = Json::parse(bytes) {
        let opposite = format!(r#"{{"op":"not","nodes":[{}]}}"#, json.as_str());
        let opposite = Json::parse(opposite.as_bytes()).expect("it is JSON around JSON");
        compare_with_opposite(&UnreadFilter::Json(json), &UnreadFilter::Json(opposite));
    }
    let mut opposite = b"\x0a\x03not\x32".to_vec();
    opposite.extend([bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8 & 0x7F]);
    opposite.extend_from_slice(bytes);
    compare_with_opposite(&UnreadFilter::Protobuf(bytes.to_vec()), &UnreadFilter::Protobuf(opposite));
}

fn compare_with_opposite(unread: &UnreadFilter, opposite: &UnreadFilter) {
    let Ok(filter) = TagsFilter::read(unread) else { return };
    let opposite = match TagsFilter::read(opposite) {
        Ok(opposite) => opposite,
        Err(FilterError::TooLarge | FilterError::TooDeep | FilterError::TooMany) => return,
        Err(error) => panic!("{error}"),
    };
    let tags = [("kind", "goal"), ("minute", "45"), ("", "-1.50")];
    for count in 0..=tags.len() {
        let owned = tags[..count].iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let tags: Tags = owned.collect::<BTreeMap<_, _>>().into();
        assert_ne!(filter.matches(&tags), opposite.matches(&tags));
    }
}

/// The same in Protobuf: a frame that was read is the frames of its commands, one after the other.
pub(crate) fn protobuf(bytes: &[u8]) {
    let commands: Vec<Result<Command, FrameError>> = parse_frame(Format::Protobuf, bytes).collect();
    assert!((1..=FRAME_COMMAND_COUNT_MAX + 1).contains(&commands.len()), "{} commands", commands.len());
    assert!(commands[..commands.len() - 1].iter().all(Result::is_ok), "nothing follows a bad command");
    if commands.len() > 1 {
        let (_, first) = commands.split_last().expect("there is one");
        let twice: Vec<u8> = [bytes, bytes].concat();
        let again = parse_frame(Format::Protobuf, &twice).take(first.len());
        again.zip(first).for_each(|(again, first)| assert_eq!(format!("{again:?}"), format!("{first:?}")));
    }
    let config = Arc::new(config(Namespaces::new(NamespaceOptions::closed(), [].into())));
    let mut session = Session::new(config, ClientId::from_random(7), Variant::websocket(Format::Protobuf));
    for command in commands.into_iter().take_while(Result::is_ok).flatten() {
        match session.handle(command, NOW) {
            Effect::Reply(reply) | Effect::Refused(reply) => {
                let length = reply.iter().position(|byte| *byte < 0x80).expect("it begins with its length") + 1;
                let told = reply[..length].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7F));
                assert_eq!(told, reply.len() - length, "a reply stands behind its length");
            }
            Effect::Connect(effect) => assert!(connected(&mut session, *effect, true).is_some()),
            _ => {}
        }
    }
}

/// Lets a client in, or fails to make its server-side subscriptions.
pub(crate) fn connected(session: &mut Session, effect: ConnectEffect, is_made: bool) -> Option<Vec<u8>> {
    let top = StreamPosition { offset: Offset(2), epoch: Epoch::from_random(0) };
    let start = |effect: SubscribeEffect| {
        (effect.ticket, Subscribed { top: effect.positioned.then_some(top), recovered: None })
    };
    let made: Vec<_> = effect.subscriptions.into_iter().map(start).collect();
    if is_made {
        return session.on_connected(effect.ticket, &made, NOW);
    }
    match session.on_connect_failed(effect.ticket, ErrorCode::Internal) {
        Effect::Refused(reply) => Some(reply),
        other => panic!("{other:?}"),
    }
}

/// A stream of bytes says the same in any pieces. The first two bytes are the limit and where it is cut.
pub(crate) fn websocket(bytes: &[u8]) {
    let Some(([limit, seed], stream)) = bytes.split_first_chunk() else { return };
    let limit = usize::from(*limit) * 2;
    let whole = heard(limit, [stream]);
    let mut random = u32::from(*seed);
    let mut rest = stream;
    let pieces = std::iter::from_fn(|| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (piece, behind) = rest.split_at_checked(1 + (random >> 28) as usize).unwrap_or((rest, &[]));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(heard(limit, pieces), whole, "in pieces, and whole");
}

/// What a stream says, as text to compare; what is answered to it is made as well.
fn heard<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = Decoder::new(limit);
    let mut all = Vec::new();
    for piece in pieces {
        let mut input = piece.to_vec();
        let mut rest = &mut input[..];
        loop {
            match decoder.decode(rest) {
                Ok(decoded) => {
                    let consumed = decoded.consumed;
                    if decoded.event == Event::NeedMore {
                        assert_eq!(consumed, rest.len(), "waiting for more keeps nothing outside");
                        break;
                    }
                    all.push(said(decoded.event, limit));
                    rest = &mut rest[consumed..];
                }
                Err(code) => {
                    all.push(format!("violation {}", code.code()));
                    rest = &mut [];
                }
            }
        }
    }
    all
}

fn said(event: Event<'_>, limit: usize) -> String {
    match event {
        Event::Text(text) => {
            assert!(text.len() <= limit);
            format!("text {text:?}")
        }
        Event::Binary(bytes) => {
            assert!(bytes.len() <= limit);
            format!("binary {bytes:?}")
        }
        Event::Ping(bytes) => {
            assert_eq!(&websocket::pong_frame(&bytes)[2..], &*bytes, "a pong says what the ping said");
            format!("ping {bytes:?}")
        }
        Event::Pong(bytes) => format!("pong {bytes:?}"),
        Event::Close { code, reason } => {
            let answer = websocket::close_frame(code.unwrap_or(1000), &reason);
            assert_eq!(&answer[4..], reason.as_bytes(), "what fitted in their frame fits in ours");
            format!("close {code:?} {reason:?}")
        }
        Event::NeedMore => unreachable!("the caller has looked"),
    }
}

/// The bytes as a token, which is never good, and as the claims of one that we have signed.
pub(crate) fn token(bytes: &[u8]) {
    let verifier = TokenVerifier::new(&secret(), None);
    let forged = Token::from(&*String::from_utf8_lossy(bytes));
    assert!(verifier.verify_connection(&forged, NOW).is_err(), "nobody else knows the secret");

    let signed = signed(bytes);
    if let Ok(claims) = verifier.verify_subscription(&signed, NOW) {
        assert!(!claims.channel.is_empty());
        assert!(verifier.verify_connection(&signed, NOW).is_err(), "a token is for one of the two");
    }
    let Ok(claims) = verifier.verify_connection(&signed, NOW) else { return };
    let expires_at = claims.expires_at.filter(|at| at.as_secs() > NOW.as_secs());
    let again = sign_connection_token(&secret(), &Admission { expires_at, ..claims.clone() }, NOW);
    let again = verifier.verify_connection(&Token::from(&*again), NOW).expect("we have just signed it");
    assert_eq!((again.user, again.device, again.info), (claims.user, claims.device, claims.info));
    assert!(again.subscriptions.keys().eq(claims.subscriptions.keys()));
}

pub(crate) fn signed(claims: &[u8]) -> Token {
    let header = BASE64_URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256"}"#);
    let message = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("HMAC takes any key");
    Token::from(&*format!("{message}.{signature}"))
}

/// Connect data, and the data of the RPC: no JSON ends a connection, and what is understood is within its bounds.
pub(crate) fn introduction(bytes: &[u8]) {
    let Ok(data) = Json::parse(bytes) else { return };
    let config = Arc::new(config(Namespaces::new(NamespaceOptions::closed(), [].into())));
    let mut session = Session::new(config, ClientId::from_random(7), Variant::websocket(Format::Json));
    let connect = only(&format!(r#"{{"id":1,"connect":{{"data":{}}}}}"#, data.as_str()));
    let Effect::Connect(effect) = session.handle(connect, NOW) else { panic!("not let in") };
    let introduction = effect.introduction.clone();
    assert!(connected(&mut session, *effect, true).is_some());
    check_visible(introduction.visible);
    match &introduction.device {
        Some(DeviceClaim::Signed(_)) => panic!("nothing was signed"),
        Some(DeviceClaim::Credential { device, credential }) => {
            assert!((1..=CREDENTIAL_BYTES_MAX).contains(&credential.as_str().len()));
            assert_eq!(session.device(), Some(device));
        }
        None => assert_eq!(session.device(), None),
    }

    let rpc = format!(r#"{{"id":2,"rpc":{{"method":"{RPC_VISIBLE}","data":{}}}}}"#, data.as_str());
    match session.handle(only(&rpc), NOW) {
        Effect::Visible { ticket, visible } => {
            check_visible(visible);
            assert!(session.on_visible(ticket, session.device(), visible).is_some());
        }
        Effect::Reply(reply) => assert!(reply.starts_with(br#"{"id":2,"error":{"code":107,"#)),
        other => panic!("{other:?}"),
    }
    assert!(session.is_connected());
}

fn check_visible(visible: Option<Duration>) {
    assert!(visible.is_none_or(|ttl| Duration::from_secs(1) <= ttl && ttl <= VISIBLE_TTL_MAX), "{visible:?}");
}

pub(crate) fn only(frame: &str) -> Command {
    let mut commands = parse_frame(Format::Json, frame.as_bytes());
    let command = commands.next().expect("there is one").expect("it is well formed");
    assert!(commands.next().is_none(), "JSON is one line");
    command
}
