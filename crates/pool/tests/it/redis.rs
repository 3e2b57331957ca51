//! RESP (the Redis protocol) with a real Redis: set-up with HELLO and AUTH, pipelining, errors as answers.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::{Buf as _, Bytes, BytesMut};
use tidings_pool::{CallError, Codec, Connect, Decoded, Expect, Outgoing, Pool, Protocol, RequestId, SetUp, Tcp, Unix};
use tokio::task::JoinSet;

use super::line::{MINUTE, SECOND, check, config, until};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Nil,
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Bytes),
    Array(Vec<Value>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RespError {
    #[error("no type begins with {0:?}")]
    Type(char),
    #[error("not a number")]
    Number,
    #[error("the server refused: {0}")]
    Refused(String),
}

struct Resp {
    password: &'static str,
}

#[derive(Default)]
struct RespCodec {
    password: &'static str,
    has_greeted: bool,
}

impl Protocol for Resp {
    type Request = Vec<Bytes>;
    type Response = Value;
    type Error = RespError;
    type Codec = RespCodec;

    fn codec(&self) -> RespCodec {
        RespCodec { password: self.password, has_greeted: false }
    }

    fn is_pipelinable(&self, request: &Vec<Bytes>) -> bool {
        !request[0].eq_ignore_ascii_case(b"blpop") // It blocks whatever is behind it.
    }

    fn is_repeatable(&self, request: &Vec<Bytes>) -> bool {
        request[0].eq_ignore_ascii_case(b"get") || request[0].eq_ignore_ascii_case(b"set")
    }
}

fn put_command(words: &[Bytes], out: &mut Outgoing) {
    use std::io::Write as _;
    write!(out, "*{}\r\n", words.len()).expect("it never fails");
    for word in words {
        write!(out, "${}\r\n", word.len()).expect("it never fails");
        out.put_bytes(word.clone());
        out.put_slice(b"\r\n");
    }
}

/// The first value and its length. `None` if it is not complete.
fn parse(input: &[u8]) -> Result<Option<(Value, usize)>, RespError> {
    let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&input[1..end]).into_owned();
    let number = || text.parse::<i64>().map_err(|_| RespError::Number);
    let after = end + 2;
    Ok(Some(match input[0] {
        b'+' => (Value::Simple(text), after),
        b'-' => (Value::Error(text), after),
        b':' => (Value::Integer(number()?), after),
        b'_' => (Value::Nil, after),
        b'$' | b'*' | b'%' if number()? < 0 => (Value::Nil, after),
        b'$' => {
            let length = number()? as usize;
            let Some(bulk) = input.get(after..after + length + 2) else { return Ok(None) };
            (Value::Bulk(Bytes::copy_from_slice(&bulk[..length])), after + length + 2)
        }
        kind @ (b'*' | b'%') => {
            let count = number()? * if kind == b'%' { 2 } else { 1 };
            let (mut values, mut at) = (Vec::new(), after);
            for _ in 0..count {
                if at == input.len() {
                    return Ok(None);
                }
                let Some((value, length)) = parse(&input[at..])? else { return Ok(None) };
                values.push(value);
                at += length;
            }
            (Value::Array(values), at)
        }
        other => return Err(RespError::Type(other.into())),
    }))
}

impl Codec<Resp> for RespCodec {
    fn set_up(&mut self, input: &mut BytesMut, out: &mut Outgoing) -> Result<SetUp, RespError> {
        if !std::mem::replace(&mut self.has_greeted, true) {
            let words = ["HELLO", "3", "AUTH", "default", self.password];
            put_command(&words.map(|word| Bytes::from_static(word.as_bytes())), out);
            return Ok(SetUp::Continue);
        }
        match parse(input)? {
            None => Ok(SetUp::Continue),
            Some((Value::Error(text), _)) => Err(RespError::Refused(text)),
            Some((_, length)) => {
                input.advance(length);
                Ok(SetUp::Done)
            }
        }
    }

    fn encode(&mut self, request: &Vec<Bytes>, _: RequestId, out: &mut Outgoing) -> Result<Expect<Value>, RespError> {
        put_command(request, out);
        Ok(Expect::Answer)
    }

    fn decode(&mut self, _: Option<&Vec<Bytes>>, input: &mut BytesMut) -> Result<Decoded<Value>, RespError> {
        let Some((value, length)) = parse(input)? else { return Ok(Decoded::Incomplete) };
        input.advance(length);
        Ok(Decoded::oldest(value))
    }

    fn goodbye(&mut self, out: &mut Outgoing) {
        put_command(&[Bytes::from_static(b"QUIT")], out);
    }
}

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// A Redis server that ends with the test.
struct Redis(Child);

impl Redis {
    fn start(folder: &Path, port: u16) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--requirepass", "sesame", "--save", ""]);
        command.arg("--unixsocket").arg(folder.join("redis.socket")).arg("--dir").arg(folder);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.expect("redis-server must be installed (the Debian package of that name)"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts pools until the server is up.
async fn pool<C: Connect>(connector: C, connection_count: usize) -> Pool<Resp> {
    let mut settings = config(connection_count);
    settings.reconnect = tidings_pool::Reconnect { min: SECOND / 100, max: SECOND / 20 };
    (settings.backlog_max, settings.in_flight_max) = (1000, 200);
    let pool = Pool::start(settings, Resp { password: "sesame" }, connector).unwrap();
    until(&pool, |counters| counters.connected == connection_count as u64).await;
    pool
}

/// A port that was free just now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn values_pipelines_errors_and_blocking_commands() {
    let folder = tempfile::tempdir().unwrap();
    let _redis = Redis::start(folder.path(), 0);
    let pool = pool(Unix::new(folder.path().join("redis.socket")), 3).await;
    let call = |line: &str| pool.call(words(line), MINUTE);
    assert_eq!(call("SET key value").await.unwrap(), Value::Simple("OK".into()));
    assert_eq!(call("GET key").await.unwrap(), Value::Bulk("value".into()));
    assert_eq!(call("GET nothing").await.unwrap(), Value::Nil);
    assert!(matches!(call("NOSUCHCOMMAND").await.unwrap(), Value::Error(_)), "an error is an answer");
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    let set = vec![Bytes::from_static(b"SET"), Bytes::from_static(b"large"), large.clone()];
    assert_eq!(pool.call(set, MINUTE).await.unwrap(), Value::Simple("OK".into()));
    let tail = call("GETRANGE large 3145700 -1").await.unwrap();
    assert_eq!(tail, Value::Bulk(large.slice(3_145_700..)));

    let mut calls = JoinSet::new();
    for n in 0..1000 {
        let pool = pool.clone();
        calls.spawn(async move {
            pool.call(words(&format!("ECHO {n}")), MINUTE).await == Ok(Value::Bulk(n.to_string().into()))
        });
    }
    assert!(calls.join_all().await.iter().all(|is_right| *is_right));

    // A blocking command does not delay other commands, and is answered in the end.
    let (popped, _) = tokio::join!(call("BLPOP list 0"), async {
        for n in 0..100 {
            call(&format!("SET other {n}")).await.unwrap();
        }
        call("RPUSH list item").await.unwrap();
    });
    assert_eq!(popped.unwrap(), Value::Array(vec![Value::Bulk("list".into()), Value::Bulk("item".into())]));
    assert!(pool.drain(SECOND * 5).await);
    check(pool.counters());
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let redis = Redis::start(folder.path(), port);
    let pool = pool(Tcp::new(format!("127.0.0.1:{port}")), 4).await;
    let mut blocked = JoinSet::new();
    for _ in 0..3 {
        let pool = pool.clone();
        blocked.spawn(async move { pool.call(words("BLPOP list 0"), MINUTE).await });
    }
    until(&pool, |counters| counters.in_flight == 3).await;
    drop(redis); // kill -9
    for result in blocked.join_all().await {
        assert_eq!(result, Err(CallError::Lost));
    }
    until(&pool, |counters| counters.connected == 0 && counters.connect_failures >= 4).await;
    assert_eq!(pool.call(words("GET key"), MINUTE).await, Err(CallError::Unavailable));
    let _redis = Redis::start(folder.path(), port);
    until(&pool, |counters| counters.connected == 4).await;
    assert_eq!(pool.call(words("GET key"), MINUTE).await, Ok(Value::Nil));
    check(pool.counters());
}

#[tokio::test]
async fn a_wrong_password_is_a_failure_to_connect() {
    let folder = tempfile::tempdir().unwrap();
    let _redis = Redis::start(folder.path(), 0);
    let socket = folder.path().join("redis.socket");
    drop(pool(Unix::new(&socket), 1).await); // It is up.
    let pool = Pool::start(config(1), Resp { password: "wrong" }, Unix::new(&socket)).unwrap();
    assert_eq!(pool.call(words("GET key"), MINUTE).await, Err(CallError::Unavailable));
    assert_eq!((pool.counters().connects, pool.counters().connect_failures), (0, 1));
}
