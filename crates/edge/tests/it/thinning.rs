//! Readers that get less than everything, because they are too slow or want less: none is disconnected, none lacks what is
//! newest, and each is told what was left out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidings_hub::Hub;
use tidings_types::Format;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::server::{Options, Server, publish_tagged};
use crate::undelta;

const THING_COUNT: u64 = 7;
/// Of a publication: a few hundred fill the buffers of a socket.
const BLOCK_BYTES: usize = 40_000;

/// A publication as a reader got it.
#[derive(Debug, Clone, PartialEq)]
struct Got {
    offset: u64,
    /// What was published: a number, the thing's name, and a block.
    number: u64,
    thing: String,
    /// What it says was left out right before it.
    skipped: Option<(u64, u64)>,
}

struct Reader {
    client: Client,
    /// The data of the publication before, for deltas.
    base: Option<String>,
}

impl Reader {
    async fn start(server: &Server, request: Value) -> Self {
        let mut client = Client::connected(server).await;
        client.subscribe(request).await;
        Self { client, base: None }
    }

    /// Reads until the publication with this number comes.
    async fn until(&mut self, number: u64) -> Vec<Got> {
        let mut all = Vec::new();
        while all.last().is_none_or(|got: &Got| got.number != number) {
            let push = self.client.next_push().await;
            let publication = &push["pub"];
            let data = self.data(publication);
            let tag = |name: &str| Some(publication["tags"][name].as_str()?.parse().expect("a number"));
            all.push(Got {
                offset: publication["offset"].as_u64().unwrap_or(0),
                number: data[0].as_u64().unwrap(),
                thing: data[1].as_str().unwrap().to_owned(),
                skipped: tag("skipped_from").zip(tag("skipped_to")),
            });
        }
        all
    }
}

impl Reader {
    /// What was published. A delta is a text, and for who gets deltas JSON is one, too.
    fn data(&mut self, publication: &Value) -> Value {
        let data = &publication["data"];
        let text = match data.as_str() {
            Some(delta) if publication["delta"] == true => {
                let base = self.base.take().expect("a delta comes behind what it is the difference to");
                let new =
                    undelta::apply(base.as_bytes(), delta.as_bytes()).expect("the delta is for the publication before");
                String::from_utf8(new).unwrap()
            }
            Some(text) => text.to_owned(),
            None => data.to_string(),
        };
        let data = serde_json::from_str(&text).unwrap();
        self.base = Some(text);
        data
    }
}

/// A reader that does not read answers no ping either, and is not closed for that here.
fn slow_options(format: Format) -> Options {
    // A slow reader takes its close frame when its turn comes.
    let close_timeout = Duration::from_mins(1);
    Options { ping_interval: Duration::from_hours(1), close_timeout, ..Options::of(format) }
}

fn thing(number: u64) -> String {
    format!("thing-{}", number * number % THING_COUNT)
}

fn publish(server: &Server, channel: &str, number: u64, bytes: usize) {
    publish_in(&server.hub, channel, number, bytes);
}

fn publish_in(hub: &Hub, channel: &str, number: u64, bytes: usize) {
    // Two that follow on each other have the same block: only a delta to the right publication gives it.
    let (thing, block) = (thing(number), format!("{:04}", number / 2).repeat(bytes / 4));
    publish_tagged(hub, channel, &json!([number, thing, block]), &[("thing", &thing)]);
}

/// Publishes so much that a reader that does not read is far behind, while `quick` gets everything.
async fn publish_many(server: &Server, channel: &str, quick: &mut Reader, count: u64) {
    for number in 1..=count {
        publish(server, channel, number, BLOCK_BYTES);
        let got = quick.until(number).await;
        assert_eq!((got.len(), got[0].skipped), (1, None), "who reads gets everything");
    }
}

/// Whatever is left out is told by the next publication, and nothing else is.
fn is_each_gap_told(got: &[Got]) {
    let mut last = 0;
    for one in got {
        let gap = (one.offset > last + 1).then_some((last + 1, one.offset - 1));
        assert_eq!(one.skipped, gap, "behind {last}: {one:?}");
        last = one.offset;
    }
}

/// The newest number of each thing.
fn newest(numbers: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    numbers.collect()
}

in_both!(a_slow_reader_of_a_map_gets_the_newest_position_of_each_thing);
async fn a_slow_reader_of_a_map_gets_the_newest_position_of_each_thing(format: Format) {
    for (channel, delta) in [("map:1", ""), ("map:1", "fossil"), ("things:1", "")] {
        let server = Server::start(slow_options(format)).await;
        let request = json!({"channel": channel, "delta": delta});
        let mut slow = Reader::start(&server, request.clone()).await;
        let mut quick = Reader::start(&server, request).await;
        const COUNT: u64 = 400;
        publish_many(&server, channel, &mut quick, COUNT).await;
        let got = slow.until(COUNT).await;
        assert!(got.len() < COUNT as usize / 2, "{} of {COUNT}: a slow reader does not get everything", got.len());
        is_each_gap_told(&got);
        let expected = newest((1..=COUNT).map(|number| (thing(number), number)));
        assert_eq!(newest(got.into_iter().map(|one| (one.thing, one.number))), expected);
        server
            .until("all is counted", || server.metric("tidings_edge_publications_skipped_total") > COUNT as f64 / 2.0)
            .await;
        assert_eq!(server.metric("tidings_edge_disconnects_total{reason=\"slow\"}"), 0.0);

        // It is as quick as the others again.
        publish_many(&server, channel, &mut quick, 3).await;
        let got = slow.until(3).await;
        assert_eq!(got.iter().map(|one| (one.number, one.skipped)).collect::<Vec<_>>(), [1, 2, 3].map(|it| (it, None)));
    }
}

in_both!(without_a_key_only_the_newest_publication_counts);
async fn without_a_key_only_the_newest_publication_counts(format: Format) {
    let server = Server::start(slow_options(format)).await;
    let mut slow = Reader::start(&server, json!({"channel": "newest:1"})).await;
    let mut quick = Reader::start(&server, json!({"channel": "newest:1"})).await;
    publish_many(&server, "newest:1", &mut quick, 400).await;
    let got = slow.until(400).await;
    is_each_gap_told(&got);
    assert!(got.len() < 200 && got.iter().any(|one| one.skipped.is_some()), "{} of 400", got.len());
}

in_both!(a_reader_that_the_tail_overtakes_goes_on_with_the_newest);
async fn a_reader_that_the_tail_overtakes_goes_on_with_the_newest(format: Format) {
    for (delta, turn_bytes_max) in [("", 256 << 10), ("fossil", 1)] {
        let options = Options { frame_count_max: 16, turn_bytes_max, ..slow_options(format) };
        let server = Server::start(options).await;
        let mut slow = Reader::start(&server, json!({"channel": "skipping:1", "delta": delta})).await;
        let mut quick = Reader::start(&server, json!({"channel": "skipping:1"})).await;
        for round in 0..2 {
            publish_many(&server, "skipping:1", &mut quick, 300).await;
            let mut got = slow.until(300).await;
            got.iter_mut().for_each(|one| one.offset -= 300 * round);
            got.iter_mut().filter_map(|one| one.skipped.as_mut()).for_each(|(from, to)| {
                *from -= 300 * round;
                *to -= 300 * round;
            });
            is_each_gap_told(&got);
            let gap_count = got.iter().filter(|one| one.skipped.is_some()).count();
            assert!((1..6).contains(&gap_count), "a few jumps, and everything between them: {got:?}");
        }
        assert_eq!(server.metric("tidings_edge_disconnects_total{reason=\"slow\"}"), 0.0);
    }
}

/// The gap is what the history gives.
#[tokio::test]
async fn what_was_skipped_is_in_the_history() {
    let server = Server::start(Options { frame_count_max: 16, ..slow_options(Format::Json) }).await;
    let mut slow = Reader::start(&server, json!({"channel": "skipping:1"})).await;
    let mut quick = Reader::start(&server, json!({"channel": "skipping:1"})).await;
    publish_many(&server, "skipping:1", &mut quick, 300).await;
    let got = slow.until(300).await;
    let (from, to) = got.iter().find_map(|one| one.skipped).expect("it has skipped some");
    let since = json!({"offset": from - 1, "epoch": slow.client.epoch});
    let ask = json!({"id": 5, "history": {"channel": "skipping:1", "since": since, "limit": 3.min(to - from + 1)}});
    slow.client.send(ask).await;
    let found = slow.client.reply(5).await;
    let offsets: Vec<_> = found["history"]["publications"].as_array().unwrap().iter().map(|it| &it["offset"]).collect();
    assert_eq!(offsets, (from..=to.min(from + 2)).collect::<Vec<_>>());
}

#[tokio::test]
async fn without_positions_it_is_told_how_many() {
    let server = Server::start(Options { frame_count_max: 16, ..slow_options(Format::Json) }).await;
    let mut slow = Reader::start(&server, json!({"channel": "fleeting:1"})).await;
    let mut quick = Reader::start(&server, json!({"channel": "fleeting:1"})).await;
    publish_many(&server, "fleeting:1", &mut quick, 300).await;
    let (mut last, mut told) = (0, 0);
    while last < 300 {
        let push = slow.client.next_push().await;
        let number = push["pub"]["data"][0].as_u64().unwrap();
        let skipped: u64 = push["pub"]["tags"]["skipped"].as_str().map_or(0, |text| text.parse().unwrap());
        assert_eq!(number, last + 1 + skipped);
        (last, told) = (number, told + skipped);
    }
    assert!(told > 0, "it has skipped some");
}

in_both!(a_reader_may_ask_for_a_few_a_second);
async fn a_reader_may_ask_for_a_few_a_second(format: Format) {
    let server = Server::start(slow_options(format)).await;
    let began = Instant::now();
    let request = json!({"channel": "map:1", "data": {"thinning": {"per_second_max": 5}}});
    let mut few = Reader::start(&server, request).await;
    let mut all = Reader::start(&server, json!({"channel": "map:1"})).await;
    const COUNT: u64 = 200;
    for number in 1..=COUNT {
        publish(&server, "map:1", number, 10);
        all.until(number).await;
        sleep(Duration::from_millis(5)).await; // Over a second, as things move.
    }
    let got = few.until(COUNT).await;
    is_each_gap_told(&got);
    let expected = newest((1..=COUNT).map(|number| (thing(number), number)));
    assert_eq!(newest(got.iter().map(|one| (one.thing.clone(), one.number))), expected);
    let rounds = 1 + (began.elapsed().as_secs_f64() * 5.0) as u64;
    let mut per_thing = BTreeMap::<_, u64>::new();
    got.iter().for_each(|one| *per_thing.entry(&one.thing).or_default() += 1);
    assert!(per_thing.values().all(|count| (2..=rounds).contains(count)), "{per_thing:?} in {rounds} rounds");
}

in_both!(a_client_gets_less_than_the_channel_gives_never_more);
async fn a_client_gets_less_than_the_channel_gives_never_more(format: Format) {
    let server = Server::start(Options { frame_count_max: 16, ..slow_options(format) }).await;
    let mut client = Client::connected(&server).await;
    let wrong = [
        ("asking:1", json!({"slow_readers": "often"})),
        ("asking:1", json!({"per_second_max": -1})),
        ("asking:1", json!({"per_second_max": 1, "slow_readers": "skip"})),
        ("asking:1", json!({"speed": 1})),
        ("asking:1", json!("skip")),
        ("asking:1", json!(["skip", 0])),
        ("kept:1", json!({"slow_readers": "skip"})), // Its clients may not ask.
    ];
    for (id, (channel, thinning)) in (10..).zip(wrong) {
        let request = json!({"channel": channel, "data": {"thinning": thinning}});
        client.send(json!({"id": id, "subscribe": request})).await;
        assert_eq!(client.reply(id).await["error"]["code"], 107, "{thinning}");
    }
    // Other data is not about this.
    client.subscribe(json!({"channel": "asking:2", "data": ["thinning"]})).await;

    let mut skips = Reader::start(&server, asking("asking:1", "skip")).await;
    let mut lasts = Client::connected(&server).await;
    lasts.subscribe(asking("asking:1", "disconnect")).await;
    // The channel gives the newest only, whatever the client asks for.
    let mut more = Reader::start(&server, asking("newest:1", "disconnect")).await;
    for channel in ["asking:1", "newest:1"] {
        let mut quick = Reader::start(&server, json!({"channel": channel})).await;
        publish_many(&server, channel, &mut quick, 300).await;
    }
    is_each_gap_told(&skips.until(300).await);
    is_each_gap_told(&more.until(300).await);
    assert_eq!(lasts.drain().await.1, Some(3008));
}

fn asking(channel: &str, slow_readers: &str) -> Value {
    json!({"channel": channel, "data": {"thinning": {"slow_readers": slow_readers}}})
}

/// What a reader had not got was dropped for other channels, and its own has nothing left: it is told by what comes next.
#[tokio::test]
async fn who_lacks_what_was_dropped_is_told_by_the_next_publication() {
    let options = Options { frame_count_max: 16, tails_bytes_max: 1 << 20, ..slow_options(Format::Json) };
    let server = Server::start(options).await;
    let mut slow = Reader::start(&server, json!({"channel": "skipping:1"})).await;
    slow.client.subscribe(json!({"channel": "skipping:quiet"})).await;
    let mut quick = Reader::start(&server, json!({"channel": "skipping:1"})).await;
    publish_many(&server, "skipping:1", &mut quick, 200).await; // Fills the socket.
    publish(&server, "skipping:quiet", 1, 10);
    // Larger than all tails may be: the only frame of the quiet channel has to go.
    publish(&server, "skipping:1", 201, 1 << 20);
    quick.until(201).await;
    publish(&server, "skipping:quiet", 2, 10);
    let mut found = None;
    while found.is_none() {
        let push = slow.client.next_push().await;
        found = (push["channel"] == "skipping:quiet").then(|| push["pub"].clone());
    }
    let found = found.unwrap();
    assert_eq!((&found["data"][0], &found["tags"]["skipped_from"]), (&json!(2), &json!("1")), "{found}");
}

in_both!(a_connection_has_so_many_bytes_a_second_for_all_its_channels);
async fn a_connection_has_so_many_bytes_a_second_for_all_its_channels(format: Format) {
    const BYTES: usize = 1000;
    const COUNT: u64 = 300;
    const PER_SECOND: u64 = 20_000; // A tenth of what is published.
    // The server's limit and what the client asks for: the lower one counts.
    for (limit, asked) in [(PER_SECOND, 0), (0, PER_SECOND), (1_000_000, PER_SECOND), (PER_SECOND, 1_000_000)] {
        let server = Server::start(Options { bytes_per_second_max: limit, ..slow_options(format) }).await;
        let connect = json!({"data": {"tidings": {"bytes_per_second_max": asked}}});
        let mut client = Client::introduced(&server, connect, "newest:busy").await;
        client.subscribe(json!({"channel": "asking:quiet"})).await;
        let (began, hub) = (Instant::now(), server.hub.clone());
        let publishing = async {
            for number in 1..=COUNT {
                publish_in(&hub, "newest:busy", number, BYTES);
                if number % 30 == 0 {
                    publish_in(&hub, "asking:quiet", number, BYTES);
                }
                sleep(Duration::from_millis(5)).await; // As things move.
            }
        };
        let reading = async {
            let (mut bytes, mut quiet, mut busy) = (0, Vec::new(), 0);
            while quiet.last() != Some(&COUNT) || busy != COUNT {
                let push = client.next_push().await;
                let number = push["pub"]["data"][0].as_u64().unwrap();
                match push["channel"].as_str().unwrap() {
                    "newest:busy" => busy = number,
                    _ => quiet.push(number),
                }
                bytes += BYTES;
            }
            (bytes, quiet)
        };
        let ((bytes, quiet), ()) = tokio::join!(reading, publishing);
        let allowed = PER_SECOND as f64 * (began.elapsed().as_secs_f64() + 1.0);
        assert!((bytes as f64) < allowed + 10.0 * BYTES as f64, "{bytes} bytes of {allowed}");
        let all: Vec<_> = (1..=COUNT / 30).map(|number| number * 30).collect();
        assert_eq!(quiet, all, "the busy one keeps out no other");
    }
}

/// Readers that read nothing, each of a channel of its own. Beside them others read all, and get all.
#[tokio::test]
async fn slow_readers_of_many_channels_share_a_budget_and_cost_the_others_nothing() {
    const BYTES_MAX: usize = 8 << 20;
    const CHANNEL_COUNT: u64 = 10;
    let server = Server::start(Options { tails_bytes_max: BYTES_MAX, ..slow_options(Format::Json) }).await;
    let (mut slow, mut quick) = (Vec::new(), Vec::new());
    for number in 0..CHANNEL_COUNT {
        let request = json!({"channel": format!("skipping:{number}")});
        slow.push(Reader::start(&server, request.clone()).await);
        quick.push(Reader::start(&server, request).await);
    }
    for number in 1..=300 {
        for (index, reader) in (0..).zip(&mut quick) {
            publish(&server, &format!("skipping:{index}"), number, BLOCK_BYTES);
            assert!(server.hub.tail_bytes() <= BYTES_MAX);
            reader.until(number).await;
        }
    }
    for mut reader in slow {
        is_each_gap_told(&reader.until(300).await);
    }
    assert!(server.metric("tidings_edge_publications_skipped_total") > 0.0);
    assert_eq!(server.metric("tidings_edge_disconnects_total{reason=\"slow\"}"), 0.0);
}

/// What a filter leaves out is no gap. But the next publication may not be a delta to it.
#[tokio::test]
async fn a_filter_leaves_out_without_a_word() {
    const COUNT: u64 = 517; // Its thing is another than that of the wanted one before, and one stands between them.
    for delta in ["", "fossil"] {
        let server = Server::start(slow_options(Format::Json)).await;
        let things = [thing(COUNT), thing(COUNT - 2)];
        let wanted = json!({"key": "thing", "cmp": "in", "vals": things});
        let mut slow = Reader::start(&server, json!({"channel": "map:1", "tf": wanted, "delta": delta})).await;
        let mut quick = Reader::start(&server, json!({"channel": "map:1"})).await;
        publish_many(&server, "map:1", &mut quick, COUNT).await;
        let got = slow.until(COUNT).await;
        assert!(got.iter().all(|one| things.contains(&one.thing)));
        let count = (1..=COUNT).filter(|number| things.contains(&thing(*number))).count();
        let skipped = got.iter().filter(|one| one.skipped.is_some()).count();
        assert!(got.len() == count && skipped == 0 || got.len() < count && skipped > 0, "{got:?}");
    }
}
