//! Real pipes, files and sockets.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tidings_batch::{BatchConfig, BatchWriter, DatagramSink, FlushError, Full, IoSink, StreamSink, WriteError};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram};

use crate::common::{Gate, PATIENCE, config, start, write_all};

#[tokio::test]
async fn a_stream_gets_the_bytes_and_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let writer = BatchWriter::new(config(64, 10_000, Full::Reject), StreamSink::new(stream));
    let _running = start(&writer);
    for number in 0..1000 {
        writer.write_when_room(format!("{number}\n").as_bytes()).await.unwrap();
    }
    let (closed, text) = tokio::join!(writer.close(PATIENCE), async {
        let mut text = String::new();
        listener.accept().await.unwrap().0.read_to_string(&mut text).await.unwrap();
        text
    });
    closed.unwrap();
    assert!(text.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..1000));
}

#[tokio::test]
async fn a_packet_is_a_page_and_a_message_too_large_for_one_is_refused() {
    let receiver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(receiver.local_addr().unwrap()).await.unwrap();
    let gate = Gate::closed();
    let writer = BatchWriter::new(config(4096, 100, Full::EvictOldest), gate);
    writer.set_sink(DatagramSink::new(socket, 10));
    let refused = writer.write(b"eleven byte").unwrap_err();
    assert_eq!(refused, WriteError::TooLarge { bytes: 11, bytes_max: 10 });
    assert_eq!(refused.to_string(), "a message of 11 bytes is larger than the limit of 10");
    let driver = writer.driver().unwrap();
    write_all(&writer, &["aaaa", "bbbb", "cccc", "ten bytes.", "d"]);
    let (flushed, ()) = tokio::join!(writer.close(PATIENCE), driver.run());
    flushed.unwrap();
    for expected in ["aaaabbbb", "cccc", "ten bytes.", "d"] {
        let mut packet = [0; 100];
        let bytes = tokio::time::timeout(PATIENCE, receiver.recv(&mut packet)).await.unwrap().unwrap();
        assert_eq!(std::str::from_utf8(&packet[..bytes]).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_waiting_message_too_large_for_a_new_sink_is_lost_and_announced() {
    let (socket, receiver) = UnixDatagram::pair().unwrap();
    let old = Gate::closed();
    let writer = BatchWriter::new(config(4096, 100, Full::EvictOldest), old.clone());
    let _running = start(&writer);
    write_all(&writer, &["first"]);
    while writer.counters().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    write_all(&writer, &["small", &"x".repeat(50), "small"]);
    writer.set_sink(DatagramSink::new(socket, 40));
    old.allow(1);
    let mut packets = Vec::new();
    for _ in 0..3 {
        let mut packet = [0; 100];
        let bytes = tokio::time::timeout(PATIENCE, receiver.recv(&mut packet)).await.unwrap().unwrap();
        packets.push(String::from_utf8(packet[..bytes].to_vec()).unwrap());
    }
    assert_eq!(packets, ["small", "… 1 message lost …\n", "small"]);
}

#[test]
fn a_thread_writes_into_a_pipe_and_ends() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let writer = BatchWriter::new(config(4096, 100_000, Full::Reject), IoSink::new(pipe));
    writer.start_thread("batch-test").unwrap();
    assert_eq!(writer.start_thread("batch-test").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    for number in 0..50_000 {
        writer.write(format!("{number}\n").as_bytes()).unwrap();
    }
    writer.close_blocking(PATIENCE).unwrap();
    assert!(read.join().unwrap().lines().map(|line| line.parse::<u32>().unwrap()).eq(0..50_000), "the pipe was closed");
    assert!(writer.counters().pages < 25_000, "{:?}", writer.counters());
}

#[tokio::test]
async fn a_thread_may_be_asked_for_twice_within_a_runtime() {
    let writer = BatchWriter::new(config(4096, 100, Full::Reject), IoSink::new(io::sink()));
    writer.start_thread("batch-test").unwrap();
    assert!(writer.start_thread("batch-test").is_err());
}

/// A peer that reads nothing blocks the thread. Producers go on, and flush and close end at their timeout.
#[test]
fn a_blocked_peer_does_not_block_producers() {
    let (mut peer, sink) = UnixStream::pair().unwrap();
    let (socket, mut filling) = (sink.try_clone().unwrap(), vec![0; fill(&sink)]);
    let evicting = BatchConfig { bytes_max: 10_000, ..config(4096, 100_000, Full::EvictOldest) };
    let writer = BatchWriter::new(evicting, IoSink::new(sink));
    writer.start_thread("batch-test").unwrap();
    let (tx, rx) = sync_channel(1);
    let producer = writer.clone();
    std::thread::spawn(move || {
        for number in 0..20_000 {
            producer.write(format!("{number:09}\n").as_bytes()).unwrap();
        }
        tx.send(()).unwrap();
    });
    rx.recv_timeout(PATIENCE).expect("the producer is not blocked");
    let short = Duration::from_millis(20);
    assert!(matches!(writer.flush_blocking(short), Err(FlushError::Deadline { held: 900.. })));
    let counters = writer.counters();
    assert!(counters.dropped > 15_000 && counters.bytes < 15_000 && counters.memory_bytes < 60_000, "{counters:?}");

    peer.read_exact(&mut filling).unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(&peer);
    while !text.ends_with("000019999\n") {
        lines.read_line(&mut text).unwrap();
    }
    assert!(text.contains(" messages lost …\n"), "the loss is announced");
    writer.flush_blocking(PATIENCE).unwrap();
    assert_eq!(writer.counters().announced, writer.counters().dropped);

    fill(&socket);
    (0..10_000).for_each(|_| writer.write(b"nobody reads").unwrap());
    assert!(matches!(writer.flush_blocking(short), Err(FlushError::Deadline { .. })));
    assert!(matches!(writer.close_blocking(short), Err(FlushError::Deadline { .. })));
    let counters = writer.counters();
    assert_eq!((counters.waiting, counters.in_flight, counters.bytes), (0, 0, 0));
    assert_eq!(counters.total, counters.sent + counters.dropped);
}

/// Writes until the socket accepts no more bytes, and returns how many it accepted.
fn fill(mut socket: &UnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let mut filled = 0;
    let error = loop {
        match socket.write(&[b'.'; 4096]) {
            Ok(bytes) => filled += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    filled
}

/// A producer waits for room at most as long as the policy says.
#[test]
fn a_producer_waits_as_long_as_the_policy_says() {
    let (_reader, mut pipe) = io::pipe().unwrap();
    pipe.write_all(&[0; 60_000]).unwrap();
    let waiting = config(8192, 1, Full::Wait { at_most: Duration::from_millis(500) });
    let writer = BatchWriter::new(waiting, IoSink::new(pipe));
    writer.start_thread("batch-test").unwrap();
    let mut written = 0;
    let begin = tokio::time::Instant::now();
    let refused = loop {
        match writer.write(&[b'x'; 8192]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, WriteError::Full { bytes: 8192 });
    assert!(written >= 2 && begin.elapsed() >= Duration::from_millis(500), "{written}, {:?}", begin.elapsed());
}
