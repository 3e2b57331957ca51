@three
Feature: Several servers
  All of them serve apps and back ends, one of them leads. When it is gone, another one goes on, and nothing that was
  acknowledged is lost.

  Scenario: An app gets what the backend tells another server
    Given three servers work together
    And Ada's app uses the second server
    And Bob's app uses the server that leads
    And the backend uses the third server
    And Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of 50 events about "match:1"
    Then Ada's and Bob's apps get the same 50 events in the same order

  Scenario: An app gets what is published on another server, and what it missed there
    Given three servers work together
    And Ada's app uses the second server
    And the backend uses the third server
    And Ada's app is connected and follows "room:1"
    When the backend publishes 2 times in "room:1"
    Then Ada's app gets the publications 1 and 2
    When Ada's app loses its connection
    And the backend publishes 2 times in "room:1"
    And Ada's app uses the third server
    And Ada's app comes back
    Then Ada's app gets the publications 1, 2, 1 and 2

  Scenario: Ada sees it in the app on one server, and another one is told of it
    Given Ada's phone is subscribed to "goal" of "match:1"
    And Bob's phone is subscribed to "goal" of "match:1"
    And three servers work together
    And Ada's app uses the second server
    And the backend uses the third server
    And Ada's app is on the screen, connected and follows "match:1"
    And Ada's app has been connected for a while
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once
    And Ada's phone is not pushed
    And Bob's phone is pushed once
    And the event counts 1 device as having received it

  Scenario: Two who are in a room on two servers see each other
    Given three servers work together
    And Ada's app uses the second server
    And Bob's app uses the third server
    And the backend uses the server that leads
    And Ada's app is connected and follows "room:1"
    And Bob's app is connected and follows "room:1"
    Then the backend finds "ada" and "bob" in "room:1"
    When the backend uses the second server
    Then the backend finds "ada" and "bob" in "room:1"
    When Bob's app loses its connection
    Then Ada's app has seen "ada" come, "bob" come and "bob" go
    And the backend finds only "ada" in "room:1"

  Scenario Outline: Somebody who is connected to another server is sent away: <place>
    Given three servers work together
    And Ada's app uses <place>
    And Bob's app uses <place>
    And the backend uses the third server
    And Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend disconnects Ada
    And the backend tells of a "goal" about "match:1"
    Then Ada's app is disconnected with code 3503
    And Bob's app gets the event once

    Examples:
      | place                 |
      | the second server     |
      | the server that leads |

  Scenario: The leading server dies, and those who are connected to others notice nothing
    Given three servers work together
    And Ada's app uses the second server
    And Bob's app uses the third server
    And Ada's app is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server that leads dies
    And the backend tells of 5 events about "match:1"
    Then Ada's app has got the 10 events, in order, once
    And Bob's app has got the 10 events, in order, once
    And Ada's app has been connected all the time
    And Bob's app has been connected all the time

  Scenario: One of three servers dies
    Given three servers work together
    And Ada's app uses the server that leads
    And Ada's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server that leads dies
    And the backend tells of 5 events about "match:1"
    And Ada's app comes back
    Then Ada's app has got the 10 events, in order, once

  Scenario: An event that was waiting when its server died is pushed by another one
    Given Ada's phone is subscribed to "goal" of "team:42"
    And three servers work together
    And the provider cannot be reached for now
    When the backend tells of a "goal" about "team:42"
    And the server that leads dies
    And the provider answers again
    Then Ada's phone is pushed once

  Scenario: A subscription survives the death of its server
    Given three servers work together
    And Ada's phone is subscribed to "goal" of "team:42"
    When the server that leads dies
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: An upgrade, one server after the other
    Given three servers work together
    And Ada's app uses the server that leads
    And Ada's app is connected and follows "match:1"
    When the backend tells of 5 events about "match:1"
    And the server that leads is stopped for an upgrade
    And Ada's app comes back
    And the backend tells of 5 events about "match:1"
    And the server that leads is stopped for an upgrade
    And Ada's app comes back
    And the backend tells of 5 events about "match:1"
    Then Ada's app has got the 15 events, in order, once
