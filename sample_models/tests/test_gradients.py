"""How gradients are tested with pytest; the second test fails, as its model is sick."""

from sample_models import gradient_cut, healthy_mlp


def test_classifier_learns(gradscope):
    model, batch = healthy_mlp.build_model(), healthy_mlp.build_batch()
    gradscope.check(model, batch, healthy_mlp.loss_fn)


def test_autoencoder_learns(gradscope):
    model, batch = gradient_cut.build_model(), gradient_cut.build_batch()
    gradscope.check(model, batch, gradient_cut.loss_fn)
