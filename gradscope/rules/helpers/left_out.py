"""Parameters with a gradient that no optimizer holds, and what tells whether that was meant."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gradscope.analysis.intent import Intent, is_named_fixed
from gradscope.analysis.model_parts import Part, Subtrees
from gradscope.analysis.reach import Reach
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.records import ParameterRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers

_NORMALISING = ("Clamp", "Div", "Expand", "LinalgVectorNorm", "Norm")
"""Prefixes of operations by which a parameter is divided by its norm."""


@dataclass(frozen=True)
class LeftOut:
    """What gets a gradient and is in no optimizer."""

    context: RuleContext

    @cached_property
    def optimizers(self) -> Optimizers:
        """The optimizers of the recording."""
        return Optimizers(self.context)

    @property
    def intent(self) -> Intent:
        """The evidence on what was meant to learn."""
        return self.context.shared(Intent)

    def is_forgotten(self, part: Part, most_times: float) -> bool:
        """Return whether a part is a network of a run that nothing marks as fixed."""
        if self.context.run is None or part.module is None or not self.is_network(part):
            return False
        networks = [one for one in self._parts_held if one.module is not None]
        if not any(self.is_network(one) for one in networks) or not self.builds_on_held(part):
            return False
        sizes = {p.index: p.numel for p in self.context.recording.parameters}
        trained = sum(sizes[p] for one in networks for p in one.parameters)
        is_large = sum(sizes[p] for p in part.parameters) > most_times * trained
        is_fixed = self.is_in_eval_mode(part) or self.intent.is_loaded(part.module)
        return not (is_large or is_fixed or is_named_fixed([part.name]))

    def is_neglected(self, part: Part) -> bool:
        """Return whether nothing clears the gradients of an encoder that nothing marks as fixed.

        It is part of a model that learns. A whole model beside it may be a reference to compare to.
        """
        is_kept = self.intent.is_never_cleared(part.parameters)
        is_meant = is_kept and self.is_network(part) and not self._is_fixed(part)
        is_first = self.is_before_all_trained(part) and not self.is_of_another_network(part)
        return is_meant and is_first

    def is_overlooked(self, part: Part, small_share: float) -> bool:
        """Return whether a small part of a run's model falls through its optimizer's groups.

        Whoever sorts parameters into groups means them all, and clears what is left out on purpose.
        """
        is_kept = self.intent.is_never_cleared([p for one in self.parts for p in one.parameters])
        # All that is left out has to be small together.
        is_small = sum(map(self.share, self.parts)) <= small_share
        return self.is_grouped and is_kept and is_small and not self._is_fixed(part)

    def is_kept_layer(self, part: Part) -> bool:
        """Return whether nothing clears the gradients of a layer that nothing marks as fixed."""
        is_kept = self.intent.is_never_cleared([p for one in self.parts for p in one.parameters])
        return is_kept and not self.is_network(part) and not self._is_fixed(part)

    def is_mistaken(self, part: Part) -> bool:
        """Return whether one of two optimizers that hold the same was meant for a network.

        Either nothing clears its gradients, because that optimizer clears those of the other
        network, or the script clears them itself: it means to train the network.
        """
        run = self.context.run
        is_double = run is not None and run.are_optimizers_alike
        return is_double and self.is_network(part) and not self._is_fixed(part)

    def is_sibling(self, part: Part) -> bool:
        """Return whether a run trains a network that was built alike, and this one is forgotten.

        So the second of two critics is, or a fine network beside a coarse one: nothing clears its
        gradients. Copies start with the same weights, and may be meant to stay as they are.
        """
        is_kept = self.intent.is_never_cleared(part.parameters)
        if self.context.run is None or not is_kept or not self.is_network(part):
            return False
        own, weights = self._shapes(part.parameters), self._weights(part.parameters)
        alike = [
            one
            for one in self._parts_held
            if self._shapes(one.parameters) == own and self._class(one) == self._class(part)
        ]
        is_copy = any(self._weights(one.parameters) == weights for one in alike)
        return bool(alike) and not is_copy and not self._is_fixed(part)

    def _class(self, part: Part) -> str | None:
        return (
            None if part.module is None else self.context.recording.modules[part.module].class_name
        )

    def _weights(self, parameters: Iterable[int]) -> list[float | None]:
        """Return the norms that parameters had when the run began, in their order."""
        run = self.context.run
        norms = () if run is None else run.first_norms
        return [norms[index] for index in sorted(parameters) if index < len(norms)]

    def is_copy(self, part: Part) -> bool:
        """Return whether a part is a copy of what an optimizer holds, and hands it its gradients.

        So is a learner that was adapted to a task: the script assigns its gradients to the model.
        """
        return self.copied_by(part) is not None and not self.is_unreturned(part)

    def copied_by(self, part: Part) -> OptimizerRecord | None:
        """Return the optimizer that holds copies of a part and gets its gradients."""
        run = self.context.run
        if run is None or not run.are_gradients_assigned:
            return None
        # The copies are other tensors: their shapes tell whose they are.
        own = self._shapes(part.parameters)
        optimizers = self.optimizers.with_parameters
        return next((one for one in optimizers if self._shapes(one.parameters) == own), None)

    def is_unreturned(self, part: Part) -> bool:
        """Return whether an optimizer steps copies of a part, and nothing returns their values.

        So are master weights in float32 that nobody copies back to the model.
        """
        run = self.context.run
        is_still = run is not None and part.parameters <= run.unmoved
        return is_still and self.is_starved and self.copied_by(part) is not None

    def _shapes(self, parameters: Iterable[int]) -> list[tuple[int, ...]]:
        records = self.context.recording.parameters
        return sorted(records[index].shape.dims for index in parameters)

    def is_unsorted(self, part: Part) -> bool:
        """Return whether a layer's parameters fall through the groups of an optimizer."""
        return self.is_grouped and not self.is_network(part) and not self._is_fixed(part)

    @cached_property
    def is_grouped(self) -> bool:
        """Return whether an optimizer has several groups, into which parameters were sorted."""
        return any(len(record.groups) > 1 for record in self.optimizers.with_parameters)

    def _is_fixed(self, part: Part) -> bool:
        """Return whether anything tells that a part is to stay as it is."""
        is_loaded = part.module is not None and self.intent.is_loaded(part.module)
        return is_loaded or self.is_in_eval_mode(part) or is_named_fixed([part.name])

    @cached_property
    def trained(self) -> frozenset[int]:
        """The parameters that get a gradient, be it zero."""
        stats = self.context.first.parameter_stats.values()
        return frozenset(s.parameter for s in stats if s.reach in ("gradient", "zero"))

    @cached_property
    def chosen(self) -> OptimizerRecord:
        """The first optimizer that trains with the same loss: another may train a teacher.

        The first of all if none does.
        """
        optimizers = self.optimizers.with_parameters
        meets = (one for one in optimizers if not self.trained.isdisjoint(one.parameters))
        return next(meets, optimizers[0])

    @cached_property
    def _subtrees(self) -> Subtrees:
        return Subtrees(self.context.recording)

    @cached_property
    def _parts_held(self) -> tuple[Part, ...]:
        trainable = {p.index for p in self.context.recording.parameters if p.requires_grad}
        return self._subtrees.parts(trainable & self.optimizers.held)

    @property
    def is_for_parts(self) -> bool:
        """Return whether all that is held makes up whole modules."""
        return all(part.module is not None for part in self._parts_held)

    @cached_property
    def splits_layers(self) -> bool:
        """Return whether the weights of several layers are held, and their biases are left out."""
        records = self.context.recording.parameters
        held = {
            records[index].module for index in self.optimizers.held if _is_weight(records[index])
        }
        left = self.trained - self.optimizers.held
        split = {records[i].module for i in left if not _is_weight(records[i])} & held
        return len(split) > 1

    @property
    def is_for_one_part(self) -> bool:
        """Return whether the optimizer was given one of several networks, such as an actor."""
        return self.is_for_parts and len(self._parts_held) == 1

    def is_network(self, part: Part) -> bool:
        """Return whether a part is more than a layer, as a critic is and a head mostly is not."""
        records = (self.context.recording.parameters[index] for index in part.parameters)
        return part.module is not None and sum(len(r.shape.dims) > 1 for r in records) > 1

    @cached_property
    def held_share(self) -> float:
        """Share of the trained tensors that optimizers hold, 0 to 1."""
        held = len(self.trained & self.optimizers.held)
        return held / len(self.trained | self.optimizers.held)

    @cached_property
    def held_elements(self) -> float:
        """Share of the trained elements that optimizers hold, 0 to 1."""
        held, trained = self.optimizers.held, self.trained | self.optimizers.held
        sizes = {p.index: p.numel for p in self.context.recording.parameters}
        return sum(sizes[p] for p in held) / max(1, sum(sizes[p] for p in trained))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts that get a gradient, are in no optimizer and do not move."""
        records = self.context.recording.parameters
        trainable = {record.index for record in records if record.requires_grad}
        parts = self._subtrees.parts(trainable - self.optimizers.held)
        run = self.context.run
        moved = frozenset[int]() if run is None else run.moved
        return tuple(
            part
            for part in parts
            if part.parameters & self.trained and part.parameters.isdisjoint(moved)
        )

    def is_of_another_network(self, part: Part) -> bool:
        """Return whether no optimizer of a run holds anything of a part's network, but others.

        Where optimizers hold nothing that learns, it is the network that they were meant for.
        """
        run = self.context.run
        if run is None or part.module is None or not self.is_network(part):
            return False
        if run.held.isdisjoint(run.learning):
            return False
        modules = self.context.recording.modules
        # The root, which has no path, may hold all models of a script.
        models = [one for one in self._subtrees.lineage(part.module) if modules[one].path]
        return all(self._subtrees.trainable[one].isdisjoint(self.optimizers.held) for one in models)

    def is_before_all_trained(self, part: Part) -> bool:
        """Return whether a run trains nothing that a part builds on, as a probed backbone."""
        run = self.context.run
        is_other_trained = run is not None and not run.held.isdisjoint(run.learning)
        return is_other_trained and not self.builds_on_held(part)

    @cached_property
    def is_starved(self) -> bool:
        """Return whether nothing that optimizers hold gets a gradient, as of a replaced model."""
        return self.trained.isdisjoint(self.optimizers.held)

    @cached_property
    def is_replaced(self) -> bool:
        """Return whether what optimizers hold was trained before, and gets no gradient now."""
        run = self.context.run
        was_trained = run is None or not run.learning.isdisjoint(self.optimizers.held)
        return self.is_starved and was_trained

    def is_late(self, part: Part) -> bool:
        """Return whether a part was made after every optimizer."""
        return all(
            part.parameters <= set(record.later) for record in self.optimizers.with_parameters
        )

    def is_in_eval_mode(self, part: Part) -> bool:
        """Return whether a part is in eval mode while the model trains."""
        owners = {self.context.recording.parameters[index].module for index in part.parameters}
        is_training = any(self.context.recording.modules[owner].training for owner in owners)
        return self.context.recording.target.mode == "train" and not is_training

    def share(self, part: Part) -> float:
        """Return the share of the trained tensors that a part has, 0 to 1."""
        return len(part.parameters) / max(1, len(self.trained))

    def builds_on_held(self, part: Part) -> bool:
        """Return whether a part's input comes from parameters that the optimizer holds."""
        nodes = self.context.parameter_nodes
        held = {nodes[index] for index in self.optimizers.held if index in nodes}
        starts = self._meetings([nodes[index] for index in part.parameters if index in nodes])
        if self._depends_on(starts, held):
            return True
        is_of_run = self.context.run is not None and not self.is_network(part)
        return is_of_run and self._meets_trained(part)

    def _meets_trained(self, part: Part) -> bool:
        """Return whether a part of few tensors is combined with what optimized layers computed.

        So are the centres of a loss, its temperature and its weights. Their own index, exponential
        and the like come first. A layer of a module that follows combines it with a weight alone.
        """
        nodes = self.context.parameter_nodes
        held = {nodes[index] for index in self.optimizers.held if index in nodes}
        own = {nodes[index] for index in self._with_others_of_layer(part) if index in nodes}
        beside = self._beside(part) & self.optimizers.held
        waiting, computed = list(own), set[int]()
        while waiting:
            one = waiting.pop()
            for user in self.context.users.get(one, ()):
                others = {ref.node for ref in self.context.successors[user]} - own
                # What a layer computed of it meets a weight of the same layer.
                if one in computed and self.context.parameters_behind(others) & beside:
                    return True
                if not others and user not in own:
                    own.add(user)
                    waiting.append(user)
                    if one in computed or self.context.recording.nodes[user].kind != "view":
                        computed.add(user)
                results = [one for one in others if not self._reach.is_parameter(one)]
                if self._depends_on(results, held):
                    return True
        return False

    def _with_others_of_layer(self, part: Part) -> frozenset[int]:
        """Return a part's parameters, and what else is left out of a layer that is held in part.

        So are the steps and the poles of a state space, whose weights are held.
        """
        alone = (one for one in self.parts if one.module is None)
        left_out = frozenset(index for one in alone for index in one.parameters)
        return part.parameters | (self._beside(part) & left_out)

    def _beside(self, part: Part) -> frozenset[int]:
        """Return the parameters of the modules that own single parameters; none for a module."""
        records = self.context.recording.parameters
        owners = {records[index].module for index in part.parameters if part.module is None}
        return frozenset(one.index for one in records if one.module in owners)

    def _depends_on(self, starts: list[int], wanted: set[int]) -> bool:
        waiting, seen = list(starts), set(starts)
        while waiting:
            for ref in self.context.successors.get(waiting.pop(), ()):
                if ref.node in wanted:
                    return True
                if ref.node not in seen:
                    seen.add(ref.node)
                    waiting.append(ref.node)
        return False

    @property
    def _reach(self) -> Reach:
        return self.context.shared(Reach)

    def _meetings(self, starts: list[int]) -> list[int]:
        """Return the operations at which parameters, as they are or normalised, meet others."""
        own, waiting, found = set(starts), list(starts), set[int]()
        while waiting:
            for user in self.context.users.get(waiting.pop(), ()):
                node = self.context.recording.nodes[user]
                if node.kind != "view" and not node.operation.startswith(_NORMALISING):
                    found.add(user)
                elif user not in own:
                    own.add(user)
                    waiting.append(user)
        return sorted(found)


def _is_weight(record: ParameterRecord) -> bool:
    return len(record.shape.dims) > 1
