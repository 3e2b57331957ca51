use crate::world::{World, device, goal, pool, until};
use tidings_telemetry::unix_now;
use tidings_types::{Event, EventPriority};

#[tokio::test]
async fn measure() {
    let Ok(count) = std::env::var("MEASURE") else { return };
    let count: usize = count.parse().unwrap();
    let world = World::new();
    let began = std::time::Instant::now();
    for start in (0..count).step_by(50_000) {
        world.register_for((start..(start + 50_000).min(count)).map(device), &["team:1"]).await;
    }
    world.register_for([device(5_000_000)], &["user:1"]).await;
    println!("registered in {:?}", began.elapsed());
    let pool = pool("main", "app", 2000);
    let config = tidings_sender::SenderConfig::default();
    let sender = world.start(config, vec![pool.clone()]);
    for round in 0..10 {
        if round == 1 || round == 6 {
            let low = Event { priority: EventPriority::Low, ..goal(&format!("news-{round}")) };
            world.accept(low).await;
        }
        let mut event = Event { priority: EventPriority::High, ..goal(&format!("goal-{round}")) };
        event.subjects = vec![tidings_types::Subject::new("user:1").unwrap()];
        let began = std::time::Instant::now();
        let at = unix_now();
        world.accept(event).await;
        let acked = began.elapsed();
        let before = pool.lakes.of(EventPriority::High).counters().accepted;
        until("handed out", || pool.lakes.of(EventPriority::High).counters().accepted > before.min(round as u64)).await;
        println!(
            "round {round}: acked {acked:?}, in the lake {:?} after {:?} backlog {:?}",
            began.elapsed(),
            at,
            sender.backlog()
        );
    }
}
