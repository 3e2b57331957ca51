//! Protobuf judged by `prost`: what it writes is read, it reads what is written, and a message means the same in JSON.

mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use tidings_protocol::token::Token;
use tidings_protocol::{
    ClientId, ClientInfo, Command, ConnectResult, Disconnect, ErrorCode, ExpiryResult, FRAME_COMMAND_COUNT_MAX,
    FrameError, ProtobufError, Publication, Push, Reply, Request, SessionId, SubscribeRequest, SubscribeResult,
    UnreadFilter, Unsubscribe, VisibleResult, encode_publication_push, encode_push, encode_reply, parse_frame, ping,
};
use tidings_types::{ChannelName, DeviceId, Epoch, Format, JSON_DEPTH_MAX, Json, Offset, StreamPosition, Variant};

type Commands = Vec<Result<Command, FrameError>>;

fn commands(format: Format, frame: &[u8]) -> Commands {
    parse_frame(format, frame).collect()
}

fn only(mut commands: Commands) -> Command {
    assert_eq!(commands.len(), 1);
    commands.pop().unwrap().unwrap()
}

fn bytes(data: Option<&Json>) -> Vec<u8> {
    data.map(|data| data.bytes().to_vec()).unwrap_or_default()
}

fn text(token: &Token) -> String {
    token.as_str().to_owned()
}

fn told_subscribe(request: &SubscribeRequest) -> schema::SubscribeRequest {
    schema::SubscribeRequest {
        channel: request.channel.clone(),
        token: text(&request.token),
        recover: request.recover,
        epoch: request.epoch.clone(),
        offset: request.offset,
        positioned: request.positioned,
        recoverable: request.recoverable,
        delta: request.delta.clone(),
        join_leave: request.join_leave,
        tf: request.tags_filter.as_ref().map(|unread| match unread {
            UnreadFilter::Json(json) => serde_json::from_slice(json.bytes()).unwrap(),
            UnreadFilter::Protobuf(message) => schema::FilterNode::decode(&**message).unwrap(),
        }),
        flag: request.flag,
        r#type: request.kind,
        ..Default::default()
    }
}

/// What was read, as the schema's message.
fn told(command: &Command) -> schema::Command {
    let mut told = schema::Command { id: command.id, ..Default::default() };
    match &command.request {
        Request::Connect(request) => {
            let (token, data) = (text(&request.token), bytes(request.data.as_ref()));
            let (name, version) = (request.name.clone(), request.version.clone());
            let subs = request.subscriptions.iter().map(|one| (one.channel.clone(), told_subscribe(one))).collect();
            told.connect = Some(schema::ConnectRequest { token, data, subs, name, version, ..Default::default() });
        }
        Request::Subscribe(request) => {
            told.subscribe = Some(told_subscribe(request));
        }
        Request::Unsubscribe { channel } => {
            told.unsubscribe = Some(schema::UnsubscribeRequest { channel: channel.clone() });
        }
        Request::Publish(request) => {
            let (channel, data) = (request.channel.clone(), bytes(request.data.as_ref()));
            told.publish = Some(schema::PublishRequest { channel, data, r#type: request.kind, ..Default::default() });
        }
        Request::Presence { channel } => told.presence = Some(schema::PresenceRequest { channel: channel.clone() }),
        Request::PresenceStats { channel } => {
            told.presence_stats = Some(schema::PresenceStatsRequest { channel: channel.clone() });
        }
        Request::History(request) => {
            let since = request.since.clone();
            let since = since.map(|since| schema::StreamPosition { offset: since.offset.0, epoch: since.epoch });
            let (channel, limit, reverse) = (request.channel.clone(), request.limit, request.reverse);
            told.history = Some(schema::HistoryRequest { channel, limit, since, reverse });
        }
        Request::Ping => told.ping = Some(schema::PingRequest {}),
        Request::Send => told.send = Some(schema::SendRequest::default()),
        Request::Rpc(request) => {
            let (method, data) = (request.method.clone(), bytes(request.data.as_ref()));
            told.rpc = Some(schema::RpcRequest { data, method });
        }
        Request::Refresh { token } => told.refresh = Some(schema::RefreshRequest { token: text(token) }),
        Request::SubRefresh { channel, token } => {
            let (channel, token) = (channel.clone(), text(token));
            told.sub_refresh = Some(schema::SubRefreshRequest { channel, token, ..Default::default() });
        }
        Request::Pong => {}
    }
    told
}

fn read_part_of_subscribe(request: &mut schema::SubscribeRequest) {
    request.data = Vec::new();
    (request.phase, request.cursor, request.limit, request.asc) = (0, String::new(), 0, false);
}

/// The part of a command that this server reads: payloads only if they are JSON.
fn read_part(mut command: schema::Command) -> schema::Command {
    let json = |data: &mut Vec<u8>| *data = bytes(Json::parse(data).ok().as_ref());
    if let Some(request) = &mut command.connect {
        let (token, mut data) = (std::mem::take(&mut request.token), std::mem::take(&mut request.data));
        json(&mut data);
        let (name, version) = (std::mem::take(&mut request.name), std::mem::take(&mut request.version));
        let mut subs = std::mem::take(&mut request.subs);
        for (channel, request) in &mut subs {
            read_part_of_subscribe(request);
            request.channel = channel.clone();
        }
        *request = schema::ConnectRequest { token, data, subs, name, version, ..Default::default() };
    }
    command.subscribe.iter_mut().for_each(read_part_of_subscribe);
    if let Some(request) = &mut command.publish {
        (request.key, request.removed) = (String::new(), false);
        json(&mut request.data);
    }
    command.rpc.iter_mut().for_each(|request| json(&mut request.data));
    command.send = command.send.map(|_| schema::SendRequest::default());
    if let Some(request) = &mut command.sub_refresh {
        (request.r#type, request.track, request.untrack) = (0, Vec::new(), Vec::new());
    }
    command
}

fn request_count(command: &schema::Command) -> usize {
    let schema::Command { connect, subscribe, unsubscribe, publish, presence, presence_stats, .. } = command;
    let schema::Command { history, ping, send, rpc, refresh, sub_refresh, .. } = command;
    [
        connect.is_some(),
        subscribe.is_some(),
        unsubscribe.is_some(),
        publish.is_some(),
        presence.is_some(),
        presence_stats.is_some(),
        history.is_some(),
        ping.is_some(),
        send.is_some(),
        rpc.is_some(),
        refresh.is_some(),
        sub_refresh.is_some(),
    ]
    .into_iter()
    .filter(|is_set| *is_set)
    .count()
}

/// A payload: JSON, but not `null`, which means absent in JSON requests.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let json = prop_oneof![any::<String>().prop_map(|text| Json::of(&text)), any::<u64>().prop_map(|n| Json::of(&n))];
    json.prop_map(|json| json.bytes().to_vec())
}

fn filter() -> impl Strategy<Value = schema::FilterNode> {
    let leaf = (any::<String>(), any::<String>()).prop_map(|(key, val)| schema::FilterNode {
        key,
        cmp: "eq".to_owned(),
        val,
        ..Default::default()
    });
    leaf.prop_recursive(3, 8, 2, |node| {
        prop::collection::vec(node, 0..3).prop_map(|nodes| schema::FilterNode {
            op: "and".to_owned(),
            nodes,
            ..Default::default()
        })
    })
}

fn connect() -> impl Strategy<Value = schema::ConnectRequest> {
    let texts = prop::collection::btree_map(any::<String>(), any::<String>(), 0..3);
    let subs = prop::collection::btree_map(any::<String>(), subscribe(), 0..3);
    (any::<String>(), payload(), any::<i64>(), texts, subs).prop_map(|(token, data, flag, headers, subs)| {
        let (name, version) = ("js".to_owned(), "1".to_owned());
        schema::ConnectRequest { token, data, subs, version, name, headers, flag, ..Default::default() }
    })
}

fn subscribe() -> impl Strategy<Value = schema::SubscribeRequest> {
    let texts = (any::<String>(), any::<String>(), any::<String>(), any::<String>());
    let numbers = (any::<u64>(), any::<i64>(), any::<i32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (texts, numbers, flags, payload(), prop::option::of(filter())).prop_map(|(texts, numbers, flags, data, tf)| {
        let ((channel, token, epoch, delta), (offset, flag, kind)) = (texts, numbers);
        let (recover, positioned, recoverable, join_leave) = flags;
        schema::SubscribeRequest {
            channel,
            token,
            recover,
            epoch,
            offset,
            data,
            positioned,
            recoverable,
            join_leave,
            delta,
            tf,
            flag,
            r#type: kind,
            phase: kind,
            cursor: "next".to_owned(),
            limit: -1,
            asc: join_leave,
        }
    })
}

/// A command with an id and one request.
fn command() -> impl Strategy<Value = schema::Command> {
    let of = |request: fn(&mut schema::Command, String, String)| {
        (any::<String>(), any::<String>()).prop_map(move |(channel, token)| {
            let mut command = schema::Command::default();
            request(&mut command, channel, token);
            command
        })
    };
    let since = prop::option::of((any::<u64>(), any::<String>()));
    let history = (any::<String>(), any::<i32>(), since, any::<bool>()).prop_map(|(channel, limit, since, reverse)| {
        let since = since.map(|(offset, epoch)| schema::StreamPosition { offset, epoch });
        let history = Some(schema::HistoryRequest { channel, limit, since, reverse });
        schema::Command { history, ..Default::default() }
    });
    let publish = (any::<String>(), payload(), any::<i32>()).prop_map(|(channel, data, kind)| {
        let publish = schema::PublishRequest { channel, data, r#type: kind, key: "k".to_owned(), removed: true };
        schema::Command { publish: Some(publish), ..Default::default() }
    });
    let rpc = (any::<String>(), payload()).prop_map(|(method, data)| schema::Command {
        rpc: Some(schema::RpcRequest { data, method }),
        ..Default::default()
    });
    let request = prop_oneof![
        connect().prop_map(|connect| schema::Command { connect: Some(connect), ..Default::default() }),
        subscribe().prop_map(|subscribe| schema::Command { subscribe: Some(subscribe), ..Default::default() }),
        of(|command, channel, _| command.unsubscribe = Some(schema::UnsubscribeRequest { channel })),
        publish,
        of(|command, channel, _| command.presence = Some(schema::PresenceRequest { channel })),
        of(|command, channel, _| command.presence_stats = Some(schema::PresenceStatsRequest { channel })),
        history,
        Just(schema::Command { ping: Some(schema::PingRequest {}), ..Default::default() }),
        payload().prop_map(|data| schema::Command { send: Some(schema::SendRequest { data }), ..Default::default() }),
        rpc,
        of(|command, _, token| command.refresh = Some(schema::RefreshRequest { token })),
        of(|command, channel, token| {
            command.sub_refresh = Some(schema::SubRefreshRequest { channel, token, ..Default::default() });
        }),
    ];
    (1..=u32::MAX, request).prop_map(|(id, request)| schema::Command { id, ..request })
}

fn json(data: Vec<u8>) -> Json {
    Json::parse(&data).unwrap()
}

fn info() -> impl Strategy<Value = ClientInfo> {
    let infos = (prop::option::of(payload()), prop::option::of(payload()));
    (any::<String>(), any::<u128>(), infos).prop_map(|(user, client, (conn_info, chan_info))| ClientInfo {
        user,
        client: ClientId::from_random(client),
        conn_info: conn_info.map(json),
        chan_info: chan_info.map(json),
    })
}

fn publication() -> impl Strategy<Value = Publication> {
    let tags = prop::collection::btree_map(any::<String>(), any::<String>(), 0..3);
    (any::<u64>(), payload(), prop::option::of(info()), tags).prop_map(|(offset, data, info, tags)| Publication {
        offset: Offset(offset),
        data: json(data),
        info: info.map(Arc::new),
        tags: tags.into(),
        receipt: None,
        texts: None,
    })
}

fn channel() -> ChannelName {
    ChannelName::new("match:1").unwrap()
}

fn in_both(encode: impl Fn(Format, &mut Vec<u8>)) -> [Vec<u8>; 2] {
    Format::ALL.map(|format| {
        let mut out = Vec::new();
        encode(format, &mut out);
        out
    })
}

/// The message, which is the same in both formats, and in Protobuf as prost would write it.
#[track_caller]
fn check([json, protobuf]: [Vec<u8>; 2]) -> schema::Reply {
    let read = schema::Reply::decode_length_delimited(&*protobuf).unwrap();
    assert_eq!(read, serde_json::from_slice(&json).unwrap(), "both formats mean the same");
    assert_eq!(read.encode_length_delimited_to_vec(), protobuf, "in the order of the numbers, in as few bytes");
    read
}

#[track_caller]
fn check_reply(id: u32, reply: &Reply<'_>) {
    assert_eq!(check(in_both(|format, out| encode_reply(format, id, reply, out))).id, id);
}

proptest! {
    #[test]
    fn what_prost_writes_is_read_and_means_the_same_in_json(command in command()) {
        let expected = read_part(command.clone());
        let read = only(commands(Format::Protobuf, &command.encode_length_delimited_to_vec()));
        prop_assert_eq!(&told(&read), &expected);
        let read = only(commands(Format::Json, &serde_json::to_vec(&command).unwrap()));
        prop_assert_eq!(&told(&read), &expected);
    }

    #[test]
    fn commands_of_one_frame_are_read_one_after_the_other(all in prop::collection::vec(command(), 1..5)) {
        let frame: Vec<u8> = all.iter().flat_map(|command| command.encode_length_delimited_to_vec()).collect();
        let read: Vec<_> = commands(Format::Protobuf, &frame).into_iter().map(|read| told(&read.unwrap())).collect();
        prop_assert_eq!(read, all.into_iter().map(read_part).collect::<Vec<_>>());
    }

    /// One byte of a command is another one: it is refused, or read as prost reads it.
    #[test]
    fn what_is_damaged_is_refused_or_read_as_prost_reads_it(command in command(), at in any::<Index>(), byte in any::<u8>()) {
        let mut message = command.encode_to_vec();
        let at = at.index(message.len());
        message[at] = byte;
        let mut frame = Vec::new();
        prost::encode_length_delimiter(message.len(), &mut frame).unwrap();
        frame.extend_from_slice(&message);
        let mut read = commands(Format::Protobuf, &frame);
        prop_assert_eq!(read.len(), 1);
        if let (Ok(read), Ok(expected)) = (read.pop().unwrap(), schema::Command::decode(&*message))
            && expected.id > 0 && request_count(&expected) == 1
        {
            prop_assert_eq!(told(&read), read_part(expected));
        }
    }

    #[test]
    fn any_bytes_are_commands_or_an_error(frame in prop::collection::vec(any::<u8>(), 0..100)) {
        let read = commands(Format::Protobuf, &frame);
        prop_assert!(!read.is_empty() && read.len() <= FRAME_COMMAND_COUNT_MAX + 1);
        prop_assert!(read[..read.len() - 1].iter().all(Result::is_ok));
    }

    #[test]
    fn prost_reads_every_reply(
        id in 1..=u32::MAX,
        publications in prop::collection::vec(publication(), 0..4),
        mut clients in prop::collection::vec(info(), 0..4),
        (offset, count) in any::<(u64, u32)>(),
        flags in any::<[bool; 4]>(),
        ttl in prop::option::of(any::<u32>()),
        data in prop::option::of(payload()),
    ) {
        let expiry = ExpiryResult { ttl: ttl.map(|ttl| Duration::from_millis(ttl.into())) };
        let top = StreamPosition { offset: Offset(offset), epoch: Epoch::from_random(offset) };
        let [recoverable, positioned, was_recovering, recovered] = flags;
        let ping_interval = Duration::from_secs(u64::from(recovered) * 25);
        clients.sort_by_key(|info| info.client.to_string());
        clients.dedup_by_key(|info| info.client);
        let client = ClientId::from_random(u128::from(offset));
        let name = positioned.then_some(("node", SessionId { loop_index: 7, secret: u128::from(offset) }));
        let device = DeviceId::new("phone-1").unwrap();
        let visible = VisibleResult { device: recovered.then_some(&device), ttl: Duration::from_secs(count.into()) };
        let data = data.map(json);
        let subscribed = SubscribeResult {
            expiry,
            recoverable,
            positioned,
            position: positioned.then_some(top),
            was_recovering,
            recovered,
            publications: &publications,
            data: data.as_ref(),
            has_deltas: false,
            number: top.offset.0 >> 1, // The schema has a signed number.
        };
        let names = ["a", "b"].map(|name| ChannelName::new(name).unwrap());
        // Not a default: in a map prost leaves the value out then, and we write an empty message.
        let plain = SubscribeResult { was_recovering: true, ..SubscribeResult::default() };
        let subscriptions = [(&names[0], subscribed), (&names[1], plain)];
        for reply in [
            Reply::Connect(&ConnectResult {
                client,
                version: "1",
                expiry,
                data: data.as_ref(),
                subscriptions: if recovered { &subscriptions } else { &[] },
                ping_interval,
                pong: recovered,
                name,
            }),
            Reply::Subscribe(&subscribed),
            Reply::Subscribe(&SubscribeResult::default()),
            Reply::Unsubscribe,
            Reply::Publish,
            Reply::Presence(&clients),
            Reply::PresenceStats { client_count: count.into(), user_count: count.into() },
            Reply::History { top, publications: &publications },
            Reply::Refresh(expiry),
            Reply::SubRefresh(expiry),
            Reply::Visible(&visible),
        ] {
            check_reply(id, &reply);
        }
    }

    #[test]
    fn prost_reads_every_push(
        publication in publication(),
        info in info(),
        code in any::<u16>(),
        reason in any::<String>(),
    ) {
        let position = Some(StreamPosition { offset: publication.offset, epoch: Epoch::from_random(7) });
        let data = Some(&publication.data);
        let start = SubscribeResult { recoverable: true, positioned: true, position, data, ..Default::default() };
        let (unsubscribe, channel) = (Unsubscribe { code, reason: reason.clone().into() }, channel());
        for push in [
            Push::Publication(&publication),
            Push::Join(&info),
            Push::Leave(&info),
            Push::Unsubscribe(&unsubscribe),
            Push::Subscribe(&start),
            Push::Subscribe(&SubscribeResult::default()),
        ] {
            let read = check(in_both(|format, out| encode_push(Variant::websocket(format), &channel, &push, out)));
            prop_assert_eq!(&*read.push.unwrap().channel, channel.as_str());
        }
        let read = check(Format::ALL.map(|format| encode_publication_push(Variant::websocket(format), &channel, &publication)));
        let pushed = read.push.unwrap().r#pub.unwrap();
        prop_assert_eq!(&pushed.data, publication.data.bytes());
        prop_assert_eq!(pushed.tags.len(), publication.tags.iter().count());
        let disconnect = Disconnect { code, reason: reason.into() };
        check(in_both(|format, out| disconnect.encode_push(Variant::websocket(format), out)));
        let expiry = ExpiryResult { ttl: Some(Duration::from_secs(code.into())) };
        check(in_both(|format, out| expiry.encode_push(Variant::websocket(format), out)));
    }

    /// A length of one to three bytes before each of the nested messages.
    #[test]
    fn payloads_of_any_length_are_written_whole(len in prop_oneof![0usize..300, 16_000usize..17_000]) {
        let data = Json::of(&"x".repeat(len));
        let publication = Publication { offset: Offset(1), data, info: None, tags: BTreeMap::new().into(), receipt: None, texts: None };
        check(Format::ALL.map(|format| encode_publication_push(Variant::websocket(format), &channel(), &publication)));
    }
}

#[test]
fn prost_reads_every_error() {
    for code in ErrorCode::ALL {
        check_reply(1, &Reply::Error(code));
    }
}

/// The Dart SDK takes a reply without a result for a broken one.
#[test]
fn an_empty_result_is_written() {
    let mut out = Vec::new();
    encode_reply(Format::Protobuf, 5, &Reply::Unsubscribe, &mut out);
    assert_eq!(out, [4, 1 << 3, 5, 7 << 3 | 2, 0]);
}

#[test]
fn a_ping_is_an_empty_reply_and_a_pong_an_empty_command() {
    assert_eq!(ping(Format::Protobuf), schema::Reply::default().encode_length_delimited_to_vec());
    assert_eq!(serde_json::from_slice::<schema::Reply>(ping(Format::Json)).unwrap(), schema::Reply::default());
    let pongs = commands(Format::Protobuf, &[0, 0]);
    assert!(pongs.into_iter().all(|pong| matches!(pong.unwrap().request, Request::Pong)));
    let send = schema::Command { send: Some(schema::SendRequest::default()), ..Default::default() };
    let send = only(commands(Format::Protobuf, &send.encode_length_delimited_to_vec()));
    assert!(matches!(send.request, Request::Send), "the only request without an id");
}

#[test]
fn what_is_no_frame_is_told_apart() {
    for (frame, good, error) in [
        (&[][..], 0, Some(FrameError::Empty)),
        (&[0], 1, None),
        (&[0, 0], 2, None),
        (&[0, 1], 1, Some(FrameError::Protobuf(ProtobufError::Cut))),
        (&[0, 0x80], 1, Some(FrameError::Protobuf(ProtobufError::Cut))),
        (&[2, 1 << 3, 5], 0, Some(FrameError::NoRequest)),
        (&[2, 1 << 3 | 2, 0], 0, Some(FrameError::Protobuf(ProtobufError::WireType(1)))),
        (&[2, 4 << 3, 0], 0, Some(FrameError::Protobuf(ProtobufError::WireType(4)))),
        (&[7, 1 << 3, 5, 5 << 3 | 2, 3, 1 << 3 | 2, 1, 0xFF], 0, Some(FrameError::Protobuf(ProtobufError::Text(1)))),
        (&[1, 0x0B], 0, Some(FrameError::Protobuf(ProtobufError::Tag))),
        (b"{}", 0, Some(FrameError::Protobuf(ProtobufError::Cut))), // JSON.
    ] {
        let mut commands = commands(Format::Protobuf, frame);
        let found = commands.pop_if(|last| last.is_err()).map(|last| last.unwrap_err());
        assert_eq!((commands.len(), &found), (good, &error), "{frame:02x?}");
        assert!(found.is_none_or(|error| error.disconnect() == Disconnect::BAD_REQUEST));
    }
    let over = commands(Format::Protobuf, &[0; 2 * FRAME_COMMAND_COUNT_MAX]);
    assert_eq!(over.len(), FRAME_COMMAND_COUNT_MAX + 1);
    assert_eq!(*over.last().unwrap().as_ref().unwrap_err(), FrameError::TooMany);
}

/// Bytes that are not JSON, and JSON that is nested too deeply.
#[test]
fn payloads_that_cannot_be_carried_are_absent() {
    let deep = "[".repeat(JSON_DEPTH_MAX + 1) + &"]".repeat(JSON_DEPTH_MAX + 1);
    for data in [&b""[..], b"\xFF\x00", b"{", deep.as_bytes()] {
        let publish = schema::PublishRequest { data: data.to_vec(), ..Default::default() };
        let rpc = schema::RpcRequest { data: data.to_vec(), ..Default::default() };
        let connect = schema::ConnectRequest { data: data.to_vec(), ..Default::default() };
        for command in [
            schema::Command { id: 1, publish: Some(publish), ..Default::default() },
            schema::Command { id: 1, rpc: Some(rpc), ..Default::default() },
            schema::Command { id: 1, connect: Some(connect), ..Default::default() },
        ] {
            let data = match only(commands(Format::Protobuf, &command.encode_length_delimited_to_vec())).request {
                Request::Publish(request) => request.data,
                Request::Rpc(request) => request.data,
                Request::Connect(request) => request.data,
                other => panic!("{other:?}"),
            };
            assert_eq!(data, None);
        }
    }
}

/// A message that comes in pieces counts as one, as Protobuf wants it; of a value that comes twice the last one counts.
#[test]
fn pieces_of_a_request_are_read_together() {
    let piece = |subscribe| schema::Command { id: 1, subscribe: Some(subscribe), ..Default::default() };
    let first = schema::SubscribeRequest { channel: "a".to_owned(), offset: 5, ..Default::default() };
    let second = schema::SubscribeRequest { channel: "b".to_owned(), recover: true, ..Default::default() };
    let message = [piece(first).encode_to_vec(), piece(second).encode_to_vec()].concat();
    let mut frame = vec![u8::try_from(message.len()).unwrap()];
    frame.extend_from_slice(&message);
    let read = told(&only(commands(Format::Protobuf, &frame)));
    assert_eq!(read, schema::Command::decode(&*message).unwrap());
}
