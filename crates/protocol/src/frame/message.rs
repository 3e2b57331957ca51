//! One command as a Protobuf message, with the field numbers of Centrifugo's schema.
//!
//! Unknown fields are skipped. A field that comes twice counts as Protobuf says: the last value, and of messages all
//! their fields together. Of the messages in a request only the position of a history request, and the headers and the
//! subscriptions of a connect are read here; a tags filter is copied and read later, within its own bounds (`filter`). So four levels are
//! read, however deep a message is.
//!
//! Payloads are bytes in Protobuf, and JSON in this server. Bytes that are not JSON, or JSON that is nested too deeply,
//! count as absent: a publication and an RPC without data are refused with error 107, and connect data is ignored.

use serde::de::IgnoredAny;
use tidings_types::{Json, Offset, check_json_depth};

use crate::admission::CONNECT_SUBSCRIPTION_COUNT_MAX;
use crate::command::{
    ClientPosition, ConnectRequest, HistoryRequest, PublishRequest, RpcRequest, SubscribeRequest, WireChannel,
    WireCommand,
};
use crate::filter::UnreadFilter;
use crate::protobuf::{ProtobufError, Values};
use crate::token::Token;

pub(super) fn read(message: &[u8]) -> Result<WireCommand, ProtobufError> {
    let mut command = WireCommand::default();
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => command.id = value.varint()? as u32,
            4 => connect(command.connect.get_or_insert_default(), value.bytes()?)?,
            5 => subscribe(command.subscribe.get_or_insert_default(), value.bytes()?)?,
            6 => channel(command.unsubscribe.get_or_insert_default(), value.bytes()?)?,
            7 => publish(command.publish.get_or_insert_default(), value.bytes()?)?,
            8 => channel(command.presence.get_or_insert_default(), value.bytes()?)?,
            9 => channel(command.presence_stats.get_or_insert_default(), value.bytes()?)?,
            10 => history(command.history.get_or_insert_default(), value.bytes()?)?,
            11 => command.ping = value.bytes().map(|_| Some(IgnoredAny))?,
            12 => command.send = value.bytes().map(|_| Some(IgnoredAny))?,
            13 => rpc(command.rpc.get_or_insert_default(), value.bytes()?)?,
            14 => refresh(command.refresh.get_or_insert_default(), value.bytes()?)?,
            15 => sub_refresh(command.sub_refresh.get_or_insert_default(), value.bytes()?)?,
            _ => {}
        }
    }
    Ok(command)
}

fn json(bytes: &[u8]) -> Option<Json> {
    check_json_depth(bytes).ok()?;
    Json::parse(bytes).ok()
}

fn connect(request: &mut ConnectRequest, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.token = Token::from(value.text()?),
            2 => request.data = json(value.bytes()?),
            3 if request.subscriptions.len() == CONNECT_SUBSCRIPTION_COUNT_MAX => return Err(ProtobufError::TooMany),
            3 => request.subscriptions.push(subscription(value.bytes()?)?),
            4 => request.name = value.text()?.to_owned(),
            5 => request.version = value.text()?.to_owned(),
            6 => request.headers.extend([entry(value.bytes()?)?]),
            _ => {}
        }
    }
    Ok(())
}

/// An entry of a map from text to text.
fn entry(message: &[u8]) -> Result<(String, String), ProtobufError> {
    let (mut key, mut text) = (String::new(), String::new());
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => key = value.text()?.to_owned(),
            2 => text = value.text()?.to_owned(),
            _ => {}
        }
    }
    Ok((key, text))
}

/// An entry of a map: a channel, and a request for it.
fn subscription(entry: &[u8]) -> Result<SubscribeRequest, ProtobufError> {
    let (mut channel, mut request) = (String::new(), SubscribeRequest::default());
    for value in Values::of(entry) {
        let value = value?;
        match value.number {
            1 => channel = value.text()?.to_owned(),
            2 => subscribe(&mut request, value.bytes()?)?,
            _ => {}
        }
    }
    Ok(SubscribeRequest { channel, ..request })
}

fn subscribe(request: &mut SubscribeRequest, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.channel = value.text()?.to_owned(),
            2 => request.token = Token::from(value.text()?),
            3 => request.recover = value.flag()?,
            6 => request.epoch = value.text()?.to_owned(),
            7 => request.offset = value.varint()?,
            8 => request.data = json(value.bytes()?),
            9 => request.positioned = value.flag()?,
            10 => request.recoverable = value.flag()?,
            11 => request.join_leave = value.flag()?,
            12 => request.delta = value.text()?.to_owned(),
            13 => {
                let unread = request.tags_filter.get_or_insert(UnreadFilter::Protobuf(Vec::new()));
                if let UnreadFilter::Protobuf(message) = unread {
                    message.extend_from_slice(value.bytes()?);
                }
            }
            14 => request.flag = value.varint()? as i64,
            15 => request.kind = value.varint()? as i32,
            _ => {}
        }
    }
    Ok(())
}

/// A request of which only the channel matters.
fn channel(request: &mut WireChannel, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        if value.number == 1 {
            request.channel = value.text()?.to_owned();
        }
    }
    Ok(())
}

fn publish(request: &mut PublishRequest, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.channel = value.text()?.to_owned(),
            2 => request.data = json(value.bytes()?),
            3 => request.kind = value.varint()? as i32,
            _ => {}
        }
    }
    Ok(())
}

fn history(request: &mut HistoryRequest, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.channel = value.text()?.to_owned(),
            7 => request.limit = value.varint()? as i32,
            8 => position(request.since.get_or_insert_default(), value.bytes()?)?,
            9 => request.reverse = value.flag()?,
            _ => {}
        }
    }
    Ok(())
}

fn position(position: &mut ClientPosition, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => position.offset = Offset(value.varint()?),
            2 => position.epoch = value.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(())
}

fn rpc(request: &mut RpcRequest, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.data = json(value.bytes()?),
            2 => request.method = value.text()?.to_owned(),
            _ => {}
        }
    }
    Ok(())
}

fn refresh(request: &mut WireChannel, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        if value.number == 1 {
            request.token = Token::from(value.text()?);
        }
    }
    Ok(())
}

fn sub_refresh(request: &mut WireChannel, message: &[u8]) -> Result<(), ProtobufError> {
    for value in Values::of(message) {
        let value = value?;
        match value.number {
            1 => request.channel = value.text()?.to_owned(),
            2 => request.token = Token::from(value.text()?),
            _ => {}
        }
    }
    Ok(())
}
