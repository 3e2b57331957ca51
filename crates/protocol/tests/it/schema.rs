//! The messages of the client protocol as another library reads and writes them: `prost` in Protobuf, `serde` in JSON.
//!
//! The structs are those of Centrifugo's schema, `client.proto` beside this file (version 0.21.0 of its module
//! `github.com/centrifugal/protocol`), field by field: types and numbers are the schema's, names are the JSON names. A
//! struct that was read in either format can be written in either format, and two structs are equal if the messages
//! mean the same. They were made from the schema once, by a script that is not kept; a change of the schema is made by
//! hand. Zero values are left out, except where the protocol wants them in JSON. Fields of bytes are embedded JSON in JSON.
//!
//! Tests of other crates use this file too, as a client that speaks Protobuf.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Bytes that are a JSON value, as the JSON format has them.
mod raw {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, ser};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_slice(bytes).map_err(ser::Error::custom)?;
        value.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Ok(Box::<RawValue>::deserialize(deserializer)?.get().as_bytes().to_vec())
    }
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Error {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) code: u32,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) message: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) temporary: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Command {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: u32,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) connect: Option<ConnectRequest>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subscribe: Option<SubscribeRequest>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) unsubscribe: Option<UnsubscribeRequest>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) publish: Option<PublishRequest>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) presence: Option<PresenceRequest>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) presence_stats: Option<PresenceStatsRequest>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) history: Option<HistoryRequest>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ping: Option<PingRequest>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) send: Option<SendRequest>,
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) rpc: Option<RpcRequest>,
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) refresh: Option<RefreshRequest>,
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) sub_refresh: Option<SubRefreshRequest>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: u32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) error: Option<Error>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) push: Option<Push>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) connect: Option<ConnectResult>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subscribe: Option<SubscribeResult>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) unsubscribe: Option<UnsubscribeResult>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) publish: Option<PublishResult>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) presence: Option<PresenceResult>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) presence_stats: Option<PresenceStatsResult>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) history: Option<HistoryResult>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ping: Option<PingResult>,
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) rpc: Option<RpcResult>,
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) refresh: Option<RefreshResult>,
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) sub_refresh: Option<SubRefreshResult>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Push {
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: i64,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) r#pub: Option<Publication>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) join: Option<Join>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) leave: Option<Leave>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) unsubscribe: Option<Unsubscribe>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) message: Option<Message>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subscribe: Option<Subscribe>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) connect: Option<Connect>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) disconnect: Option<Disconnect>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) refresh: Option<Refresh>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Dictionary {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: String,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) data_b64: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClientInfo {
    #[prost(string, tag = "1")]
    pub(crate) user: String,
    #[prost(string, tag = "2")]
    pub(crate) client: String,
    #[prost(bytes = "vec", tag = "3")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) conn_info: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) chan_info: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Publication {
    #[prost(bytes = "vec", tag = "4")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) info: Option<ClientInfo>,
    #[prost(uint64, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) offset: u64,
    #[prost(btree_map = "string, string", tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tags: BTreeMap<String, String>,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) delta: bool,
    #[prost(int64, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) time: i64,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(string, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) key: String,
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) removed: bool,
    #[prost(sint64, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) score: i64,
    #[prost(string, tag = "14")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epoch: String,
    #[prost(bytes = "vec", tag = "15")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) prev_data: Vec<u8>,
    #[prost(uint64, tag = "16")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: u64,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Join {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) info: Option<ClientInfo>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Leave {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) info: Option<ClientInfo>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Unsubscribe {
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) code: u32,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subscribe {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recoverable: bool,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) offset: u64,
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) positioned: bool,
    #[prost(bytes = "vec", tag = "7")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Message {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Connect {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) client: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: String,
    #[prost(bytes = "vec", tag = "3")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(btree_map = "string, message", tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subs: BTreeMap<String, SubscribeResult>,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
    #[prost(uint32, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ping: u32,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) pong: bool,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) session: String,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) node: String,
    #[prost(int64, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) time: i64,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Disconnect {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) code: u32,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reason: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reconnect: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Refresh {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) token: String,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(btree_map = "string, message", tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subs: BTreeMap<String, SubscribeRequest>,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: String,
    #[prost(btree_map = "string, string", tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) headers: BTreeMap<String, String>,
    #[prost(int64, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) flag: i64,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) profile: String,
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) dict: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectResult {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) client: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
    #[prost(bytes = "vec", tag = "5")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(btree_map = "string, message", tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) subs: BTreeMap<String, SubscribeResult>,
    #[prost(uint32, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ping: u32,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) pong: bool,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) session: String,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) node: String,
    #[prost(int64, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) time: i64,
    #[prost(int64, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) flag: i64,
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) dict: Option<Dictionary>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshResult {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) client: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubscribeRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) token: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recover: bool,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) offset: u64,
    #[prost(bytes = "vec", tag = "8")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) positioned: bool,
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recoverable: bool,
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) join_leave: bool,
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) delta: String,
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tf: Option<FilterNode>,
    #[prost(int64, tag = "14")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) flag: i64,
    #[prost(int32, tag = "15")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) r#type: i32,
    #[prost(int32, tag = "16")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) phase: i32,
    #[prost(string, tag = "17")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cursor: String,
    #[prost(int32, tag = "18")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) limit: i32,
    #[prost(bool, tag = "19")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) asc: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubscribeResult {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recoverable: bool,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epoch: String,
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) publications: Vec<Publication>,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) recovered: bool,
    #[prost(uint64, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) offset: u64,
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) positioned: bool,
    #[prost(bytes = "vec", tag = "11")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) was_recovering: bool,
    #[prost(bool, tag = "13")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) delta: bool,
    #[prost(int64, tag = "14")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: i64,
    #[prost(int32, tag = "15")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) r#type: i32,
    #[prost(int32, tag = "16")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) phase: i32,
    #[prost(string, tag = "17")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cursor: String,
    #[prost(message, repeated, tag = "18")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) state: Vec<Publication>,
    #[prost(uint32, tag = "19")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) publish_debounce: u32,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeyedItem {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) key: String,
    #[prost(uint64, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) version: u64,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrackBatch {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) signature: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) items: Vec<KeyedItem>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubRefreshRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) token: String,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) r#type: i32,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) track: Vec<TrackBatch>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) untrack: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubRefreshResult {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttl: u32,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) items: Vec<Publication>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UnsubscribeRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UnsubscribeResult {}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PublishRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) r#type: i32,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) key: String,
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) removed: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PublishResult {}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PresenceRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PresenceResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) presence: BTreeMap<String, ClientInfo>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PresenceStatsRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PresenceStatsResult {
    #[prost(uint32, tag = "1")]
    pub(crate) num_clients: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) num_users: u32,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StreamPosition {
    #[prost(uint64, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) offset: u64,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) epoch: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryRequest {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) channel: String,
    #[prost(int32, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) limit: i32,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) since: Option<StreamPosition>,
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reverse: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryResult {
    #[prost(message, repeated, tag = "1")]
    pub(crate) publications: Vec<Publication>,
    #[prost(string, tag = "2")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PingRequest {}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PingResult {}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RpcRequest {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) method: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RpcResult {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SendRequest {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(skip_serializing_if = "is_default", with = "raw")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FilterNode {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) op: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) key: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cmp: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) val: String,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) vals: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) nodes: Vec<FilterNode>,
}
