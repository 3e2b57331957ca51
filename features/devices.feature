Feature: Devices
  What a phone asked for and what it wants to be spared, whose it is, who may change that, and how long it is kept.

  Scenario: A phone that wants its peace is told nothing
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted everything
    When the backend tells of a "goal" about "team:42"
    And the backend tells of a "goal" about "match:1" to Ada's phone
    Then Ada's phone is not pushed
    And Bob's phone is pushed once

  Scenario: A muted subject keeps out every event that is about it too
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone is subscribed to "goal" of "match:1"
    And Ada's phone has muted "team:42"
    When the backend tells of a "goal" about "match:1" and "team:42"
    Then Ada's phone is not pushed
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: A mute with an end ends by itself
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted everything for an hour
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    When Ada's phone has muted everything for 1 second instead
    And the mute of Ada's phone is over
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: A mute outlives the death of the server
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted "team:42"
    When the server is killed and started again
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed

  Scenario: A token belongs to the phone that registered it last
    Given the server is running
    And Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is known
    When Bob's phone registers with the token of Ada's phone
    Then the server cannot reach Ada's phone any more
    And the token of Ada's phone is that of Bob's phone

  Scenario: Who has not seen the last change does not undo it
    Given Ada's phone is known
    When two back ends read Ada's phone, and both change its language
    Then the first change of Ada's phone holds and the second is refused

  Scenario: An app does for its own phone what it may
    Given apps may call for themselves and subscribe to "team:*"
    And Ada's phone is known
    When the app of Ada's phone subscribes it to "goal" of "team:42"
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: An app does nothing for another phone
    Given apps may call for themselves and subscribe to "team:*"
    And Ada's phone is known
    And Bob's phone is known
    When the app of Ada's phone tries to subscribe Bob's phone to "goal" of "team:42"
    Then it is refused as if there were no such phone
    When the app of Ada's phone tries to subscribe Ada's phone to "goal" of "order:7"
    Then the app is refused

  Scenario: An app that asks without pause is slowed down
    Given apps may call for themselves and subscribe to "team:*", 5 times at once
    And Ada's phone is known
    When the app of Ada's phone asks 20 times without a pause
    Then some are refused, with the time after which to ask again

  Scenario: An import goes on after the death of the server
    Given the server is running
    And an import of 3000 phones subscribed to "goal" of "team:42" has come halfway
    When the server is killed and started again
    And the import goes on
    Then exactly these 3000 phones are there
    And 3000 phones would be told of a "goal" about "team:42"

  Scenario: Everybody is still there after the death of the server
    Given the server notes all it has in memory every 1000 changes
    And an import of 2500 phones subscribed to "goal" of "team:42" is done
    When the server is killed and started again
    Then exactly these 2500 phones are there
    And 2500 phones would be told of a "goal" about "team:42"

  @one
  Scenario: A server that has lost its disk goes on from its backup
    One of several servers that has lost its disk begins with a copy of the others. A backup is for when all have.

    Given an import of 500 phones subscribed to "goal" of "team:42" is done
    And the server is running
    When the operator makes a backup
    And the server loses its disk and is restored
    Then exactly these 500 phones are there
    And 500 phones would be told of a "goal" about "team:42"

  Scenario: What is kept of a user can be handed out and forgotten
    Given Ada's phone belongs to the user "ada"
    And Ada's tablet belongs to the user "ada"
    And Bob's phone belongs to the user "bob"
    When the backend asks for all that is kept of the user "ada"
    Then that is Ada's phone and Ada's tablet
    When the backend forgets the user "ada"
    And the backend asks for all that is kept of the user "ada"
    Then that is nothing
    When the backend tells of a "goal" about "user:ada"
    Then Ada's phone is not pushed
    And Bob's phone is still known

  Scenario: An event for whom words describe
    Given Ada's phone in "SE" is subscribed to "goal" of "team:42"
    And Bob's phone in "PL" is subscribed to "goal" of "team:42"
    And Cleo's phone in "SE" is subscribed to "goal" of "team:7"
    When the backend asks what "goal on team:42 and country = SE" means
    Then it means 1 of 3 devices: "goal on team:42" 2 and "country = SE" 2
    When the backend tells of a "goal" about "match:1" to those of "goal on team:42 and country = SE"
    Then Ada's phone is pushed once
    And Bob's phone is not pushed
    And Cleo's phone is not pushed

  Scenario: Tokens stay when the server looks for them in the wrong world
    Given tokens that the provider does not know are doubted for 1 second
    And 60 phones are subscribed to "goal" of "team:42"
    And the provider knows no token
    When the backend tells of a "goal" about "team:42"
    Then the operator is alarmed that all is of another world
    When the provider takes everything again
    And the backend tells of another "goal" about "team:42"
    Then all 60 phones are pushed that

  Scenario: A phone that nobody has seen for long is forgotten
    Given phones that were not seen for 30 days are forgotten
    And a phone that was last seen in 2020 is imported
    And Ada's phone is subscribed to "goal" of "team:42"
    Then the server forgets the imported phone
    And Ada's phone is still known
