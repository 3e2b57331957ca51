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

  Scenario: The backend brings a user's app into a channel
    Given Ada's app is connected
    When the backend subscribes Ada to "match:1"
    And the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once

  Scenario: The backend takes a user's app out of a channel
    Given Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend unsubscribes Ada from "match:1"
    And the backend tells of a "goal" about "match:1"
    Then Bob's app gets the event once
    And Ada's app gets no event

  Scenario: The backend sends one user away
    Given Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend disconnects Ada
    And the backend tells of a "goal" about "match:1"
    Then Ada's app is disconnected with code 3503
    And Bob's app gets the event once

  Scenario: A user's token names the channels of the app
    Given Ada's token names "match:1"
    And Ada's app is connected
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once

  Scenario: Those who are in a room see who comes and who goes
    Given Ada's app is connected and follows "room:1"
    And Bob's app is connected and follows "room:1"
    When Bob's app loses its connection
    Then Ada's app has seen "ada" come, "bob" come and "bob" go

  Scenario: An app gets the publications of one team only
    Given Ada's app is connected and follows "room:1" for the team "SWE" only
    And Bob's app is connected and follows "room:1"
    When the backend publishes about the teams "SWE", "DEN" and "SWE" in "room:1"
    Then Ada's app gets the publications 1 and 3
    And Bob's app gets the publications 1, 2 and 3

  Scenario: A page that only listens gets events without a word
    Given Ada's page listens to "match:1" without a word
    When the backend tells of 3 events about "match:1"
    Then Ada's page has got the 3 events about "match:1", in order, once

  Scenario: The backend sees who is in a room
    Given Ada's app is connected and follows "room:1"
    And Bob's app is connected and follows "room:1"
    And Eve's app is connected and follows "room:2"
    Then the backend finds "ada" and "bob" in "room:1"

  Scenario: The backend looks up what was published last
    When the backend publishes 5 times in "room:1"
    Then the last 2 of "room:1" are the publications 5 and 4

  Scenario: A backend that publishes again as it got no answer publishes once
    Given Ada's app is connected and follows "room:1"
    When the backend publishes in "room:1", and again under the same key as nobody answered
    And the backend publishes 2 times in "room:1"
    Then Ada's app gets the publications 0, 1 and 2

  Scenario: A slow app gets the newest position of each thing
    Given Ada's app is connected over a slow line and follows "map:7" with the newest per key
    When 1000 positions of 10 things are published in "map:7"
    Then Ada's app has the newest position of each thing
