//! JSON and Protobuf side by side: the handshake, one channel with readers of both, and what each may send.

use std::time::Duration;

use prost::Message as _;
use serde_json::json;
use tidings_types::Format;

use crate::client::{self, Client};
use crate::schema;
use crate::server::{Options, Server};

async fn reader(server: &Server, format: Format, channel: &str) -> Client {
    let mut client = Client::connected_in(server, format).await;
    client.subscribe(json!({"channel": channel})).await;
    client
}

#[tokio::test]
async fn a_known_subprotocol_is_confirmed() {
    let server = Server::start(Options::default()).await;
    for (offered, confirmed) in [
        ("centrifuge-json", Some("centrifuge-json")),
        ("centrifuge-protobuf", Some("centrifuge-protobuf")),
        ("soap, centrifuge-protobuf, centrifuge-json", Some("centrifuge-protobuf")),
        ("", None),
        ("soap", None),
    ] {
        assert_eq!(client::handshake(&server, offered).await, (101, confirmed.map(str::to_owned)), "{offered}");
    }
}

/// Some SDKs reconnect for ever when the server does not ping them.
#[tokio::test]
async fn protobuf_without_pings_is_refused() {
    let server = Server::start(Options { ping_interval: Duration::ZERO, ..Options::default() }).await;
    assert_eq!(client::handshake(&server, "centrifuge-protobuf").await, (400, None));
    assert_eq!(client::handshake(&server, "centrifuge-json").await, (101, Some("centrifuge-json".to_owned())));
}

/// A format is written from its first reader on, and the readers of both formats see one order.
#[tokio::test]
async fn readers_of_both_formats_come_and_go_in_one_channel() {
    let server = Server::start(Options::default()).await;
    let mut readers: Vec<(Client, u64)> = Vec::new();
    for value in 0..40 {
        if value % 3 == 0 {
            let format = Format::ALL[value as usize / 3 % 2];
            readers.push((reader(&server, format, "kept:1").await, value));
        }
        if value % 7 == 6 {
            readers.remove(0);
        }
        server.publish("kept:1", json!({"value": value}));
    }
    assert!(readers.len() > 4, "some have stayed");
    for (client, from) in &mut readers {
        for value in *from..40 {
            let expected = json!({"channel": "kept:1", "pub": {"data": {"value": value}, "offset": value + 1}});
            assert_eq!(client.next().await["push"], expected);
        }
    }
}

/// What a client publishes reaches the readers of the other format with everything that belongs to it.
#[tokio::test]
async fn a_publication_means_the_same_to_both() {
    let server = Server::start(Options::default()).await;
    let mut readers = Vec::new();
    for format in Format::ALL {
        readers.push(reader(&server, format, "kept:1").await);
    }
    for (index, data) in [json!({"text": "hällo\n"}), json!(null)].into_iter().enumerate() {
        readers[index].send(json!({"id": 3, "publish": {"channel": "kept:1", "data": data}})).await;
        let [json, protobuf] = &mut readers[..] else { panic!("two formats") };
        let pushes = [json.next_push().await, protobuf.next_push().await];
        assert_eq!(pushes[0], pushes[1]);
        assert_eq!(pushes[0]["pub"]["data"], data);
        assert!(pushes[0]["pub"]["info"]["client"].is_string());
    }
}

/// A reader of Protobuf that comes back gets what was published while nobody read Protobuf.
#[tokio::test]
async fn what_was_written_only_in_json_is_recovered_in_protobuf() {
    let server = Server::start(Options::default()).await;
    let mut json = reader(&server, Format::Json, "kept:1").await;
    (1..=3).for_each(|value| server.publish("kept:1", json!(value)));
    assert_eq!(json.publications(3).await, [json!(1), json!(2), json!(3)]);
    let mut protobuf = Client::connected_in(&server, Format::Protobuf).await;
    let resume = json!({"channel": "kept:1", "recover": true, "offset": 1, "epoch": json.epoch});
    let subscribed = protobuf.subscribe(resume).await;
    assert_eq!(subscribed["recovered"], true);
    assert_eq!(subscribed["publications"], json!([{"data": 2, "offset": 2}, {"data": 3, "offset": 3}]));
    server.publish("kept:1", json!(4));
    assert_eq!(protobuf.next().await["push"]["pub"], json!({"data": 4, "offset": 4}));
}

/// The frame's kind does not matter: the format of the connection says how it is read.
#[tokio::test]
async fn commands_are_read_in_the_format_of_the_connection() {
    let server = Server::start(Options::default()).await;
    let mut json = Client::open_as(&server, Format::Json).await;
    json.send_binary(br#"{"id":1,"connect":{}}"#).await;
    assert!(json.reply(1).await["connect"].is_object());
    let mut protobuf = Client::open_as(&server, Format::Protobuf).await;
    protobuf.send_as_text("\x04\x08\x01\x22\0").await;
    assert!(protobuf.reply(1).await["connect"].is_object());
    for bad in [&b""[..], b"{}", b"\x7f\0", b"\x04\x08\x01\x20\0"] {
        let mut client = Client::open_as(&server, Format::Protobuf).await;
        client.send_binary(bad).await;
        assert_eq!(client.drain().await.1, Some(3501), "{bad:?}");
    }
}

/// Data that is not JSON cannot be read by the others.
#[tokio::test]
async fn data_that_is_not_json_is_refused_with_107() {
    let server = Server::start(Options::default()).await;
    let mut client = reader(&server, Format::Protobuf, "kept:1").await;
    let publish = |data: &[u8]| schema::PublishRequest {
        channel: "kept:1".to_owned(),
        data: data.to_vec(),
        ..Default::default()
    };
    for data in [&b""[..], b"\xff", b"hello"] {
        let command = schema::Command { id: 3, publish: Some(publish(data)), ..Default::default() };
        client.send_binary(&command.encode_length_delimited_to_vec()).await;
        assert_eq!(client.reply(3).await["error"]["code"], 107);
    }
    assert_eq!(server.hub.counts().channels, 1);
    client.send(json!({"id": 4, "publish": {"channel": "kept:1", "data": "heard"}})).await;
    assert_eq!(client.publications(1).await, [json!("heard")]);
}

/// A reader of one format that does not read is closed, and readers of the other format lose nothing.
#[tokio::test]
async fn a_slow_reader_of_one_format_costs_those_of_the_other_nothing() {
    for slow in Format::ALL {
        let server = Server::start(Options { frame_count_max: 64, ..Options::default() }).await;
        let mut idle = reader(&server, slow, "room").await;
        let mut quick = [reader(&server, Format::Json, "room").await, reader(&server, Format::Protobuf, "room").await];
        let block = "x".repeat(60_000);
        let mut published = 0;
        while server.metric("tidings_edge_disconnects_total{reason=\"slow\"}") == 0.0 {
            assert!(published < 5000, "the slow reader should have been closed by now");
            server.publish("room", json!([published, block]));
            for client in &mut quick {
                assert_eq!(client.next().await["push"]["pub"]["data"][0], published);
            }
            published += 1;
        }
        let (_, close) = idle.drain().await;
        assert_eq!(close, Some(3008));
    }
}
