Feature: Live
  Whoever is connected and has subscribed to a channel gets what is published in it: everything, in order, once.

  Scenario: A connected app gets an event
    Given Ada's app is connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once

  Scenario: Everybody sees the same order
    Given Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of 50 events about "match:1"
    Then Ada's and Bob's apps get the same 50 events in the same order

  Scenario: An app that was in a tunnel gets what it missed
    Given Ada's app is connected and follows "match:1"
    And Ada's app loses its connection
    When the backend tells of 20 events about "match:1"
    And Ada's app comes back
    Then Ada's app gets the 20 events it missed, in order, once

  Scenario: An app that was away for too long is told so
    Given Ada's app is connected and follows "match:1"
    And Ada's app loses its connection
    When the backend tells of more events about "match:1" than are kept
    And Ada's app comes back
    Then Ada's app is told that it missed something

  Scenario: A stranger is not let in
    When somebody connects with a token that is not ours
    Then the connection is refused

  Scenario: An app that cannot use WebSocket gets events as a stream over HTTP
    Given Ada's app is connected by server-sent events and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once

  @unwritten
  Scenario: A slow app gets the newest position of each thing
    Given Ada's app is connected over a slow line and follows "map:7" with the newest per key
    When 1000 positions of 10 things are published in "map:7"
    Then Ada's app has the newest position of each thing
